"use strict";
// Keeps a reader's guess on this machine, where the browser allows it; nothing is sent.
(() => {
  const form = document.querySelector("form.guess");
  const input = form.elements.guess;
  const kept = form.querySelector(".kept");
  const key = `refgf-guess-${form.dataset.lesson}`;
  const store = {
    get: () => { try { return localStorage.getItem(key) || ""; } catch { return ""; } },
    set: (text) => { try { localStorage.setItem(key, text); } catch { /* not kept */ } },
  };
  input.value = store.get();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    store.set(input.value);
    kept.textContent = "Written down.";
    document.querySelector("details.reveal summary").focus();
  });
  input.addEventListener("change", () => store.set(input.value));
})();
