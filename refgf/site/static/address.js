"use strict";
// What a reader chose in a form stays in the address, so that it can be sent as a link.
// lists: {id of a slider: its values}
window.inAddress = (form, lists) => {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const one of form.elements) {
    const values = lists[one.id] ? lists[one.id].map(String) : [...one.options].map(({ value }) => value);
    const place = values.indexOf(given.get(one.id));
    if (place >= 0) one.value = lists[one.id] ? place : values[place];
  }
  let timer = null;
  const write = () => {
    const chosen = [...form.elements].map((one) => [one.id, lists[one.id] ? lists[one.id][one.value] : one.value]);
    history.replaceState(null, "", `#${new URLSearchParams(chosen)}`);
  };
  form.addEventListener("input", () => { // browsers refuse to change an address many times a second
    clearTimeout(timer);
    timer = setTimeout(write, 300);
  });
};
