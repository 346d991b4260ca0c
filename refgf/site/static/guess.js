"use strict";
// Keeps a reader's guess on this machine, where the browser allows it; nothing is sent. A guess, or
// a link to what was measured, unfolds it.
(() => {
  const form = document.querySelector("form.guess");
  const input = form.elements.guess;
  const kept = form.querySelector(".kept");
  const key = `refgf-guess-${form.dataset.lesson}`;
  const store = {
    get: () => { try { return localStorage.getItem(key) || ""; } catch { return ""; } },
    set: (text) => { try { localStorage.setItem(key, text); } catch { /* not kept */ } },
  };
  const unfold = () => {
    for (const each of document.querySelectorAll("details.reveal")) each.open = true;
  };
  const asked = () => { if (["#figures", "#verdicts"].includes(location.hash)) unfold(); };
  input.value = store.get();
  if (input.value) unfold();
  asked();
  window.addEventListener("hashchange", asked);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    store.set(input.value);
    kept.textContent = "Written down. What was measured is unfolded below.";
    unfold();
    document.querySelector("details.reveal summary").focus();
  });
  input.addEventListener("change", () => store.set(input.value));
})();
