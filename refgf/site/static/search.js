"use strict";
// Looks for words in the sections that refgf/site/search.py exported, with MiniSearch.
(() => {
  const [MOST, AROUND] = [30, 110]; // results; characters of an excerpt before and after the word
  const input = document.querySelector('input[name="q"]');
  const at = (id) => document.getElementById(id);
  const make = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const say = (text) => { at("said").textContent = text; };
  if (!window.MiniSearch) {
    say("This site was built without MiniSearch. Next: install npm and call make site. All pages are listed in the menu.");
    return;
  }
  const titles = {}; // of a page: its first heading
  const sections = window.SECTIONS.map(([address, heading, text], id) => {
    const page = address.split("#")[0];
    titles[page] ||= heading;
    return { id, address, heading, text, page: titles[page] };
  });
  const index = new window.MiniSearch({
    fields: ["heading", "text", "page"],
    searchOptions: { boost: { heading: 4, page: 2 }, prefix: true, fuzzy: (word) => (word.length > 4 ? 0.2 : false), combineWith: "AND" },
  });
  index.addAll(sections);

  function excerpt({ text }, words) { // around the first word that was found, which is marked
    const places = words.map((word) => [text.toLowerCase().indexOf(word), word]).filter(([place]) => place >= 0);
    const [place, word] = places.length ? places.sort(([a], [b]) => a - b)[0] : [0, ""];
    const [start, end] = [Math.max(0, place - AROUND), place + word.length + AROUND];
    const box = make("p", (start ? "... " : "") + text.slice(start, place));
    box.append(make("mark", text.slice(place, place + word.length)), text.slice(place + word.length, end) + (end < text.length ? " ..." : ""));
    return box;
  }
  function search() {
    const found = index.search(input.value);
    say(!input.value.trim() ? "Write in the field above." : found.length > MOST
      ? `${found.length} sections, the best ${MOST}:` : `${found.length} section${found.length === 1 ? "" : "s"}`);
    at("found").replaceChildren(...found.slice(0, MOST).map(({ id, terms }) => {
      const one = sections[id];
      const link = make("a", one.heading && one.heading !== one.page ? `${one.page}: ${one.heading}` : one.page);
      link.href = `../${one.address}`;
      const item = make("li", "");
      item.append(link, excerpt(one, terms));
      return item;
    }));
  }
  input.value = new URLSearchParams(location.search).get("q") || "";
  input.addEventListener("input", search);
  input.form.addEventListener("submit", (event) => event.preventDefault());
  if (input.value) search();
  input.focus();
})();
