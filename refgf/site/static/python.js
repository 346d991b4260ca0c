"use strict";
// Starts Pyodide in a worker, so that the page goes on meanwhile. -> ask(text), a promise of the
// text that the Python function answers; `code` is Python that ends with this function.
window.startPython = (modules, code) => new Promise((started, failed) => {
  const worker = new Worker("../static/python-worker.js", { type: "module" });
  const waiting = [];
  const ask = (text) => new Promise((done, wrong) => {
    waiting.push({ done, wrong });
    worker.postMessage({ text });
  });
  worker.addEventListener("error", () => failed(new Error("Python could not be started")));
  worker.addEventListener("message", ({ data }) => {
    if (!waiting.length) {
      if (data.error) failed(new Error(data.error));
      else started(ask);
      return;
    }
    const { done, wrong } = waiting.shift();
    if (data.error) wrong(new Error(data.error));
    else done(data.text);
  });
  worker.postMessage({ modules, code });
});
