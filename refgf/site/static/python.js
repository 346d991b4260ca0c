"use strict";
// startPython starts Pyodide in a worker, so that the page goes on meanwhile. -> ask(text), a
// promise of the text that the Python function answers; `code` is Python that ends with this function.
window.loadScript = (src) => new Promise((loaded, failed) => {
  const node = document.createElement("script");
  node.src = src;
  node.addEventListener("load", loaded);
  node.addEventListener("error", () => failed(new Error(`${src} could not be loaded`)));
  document.head.append(node);
});
// A page from a disk may load scripts only: disk.js holds the other files as data: addresses.
window.startPython = async (modules, code) => {
  if (location.protocol === "file:" && !window.DISK) await window.loadScript("../pyodide/disk.js");
  const disk = window.DISK;
  const address = disk ? disk["python-worker.js"] : "../static/python-worker.js";
  const worker = new Worker(address, { type: "module" });
  const waiting = [];
  const send = (message) => new Promise((done, wrong) => {
    waiting.push({ done, wrong });
    worker.postMessage(message);
  });
  worker.addEventListener("error", () => {
    for (const { wrong } of waiting.splice(0)) wrong(new Error("Python could not be started"));
  });
  worker.addEventListener("message", ({ data }) => {
    const { done, wrong } = waiting.shift();
    if (data.error) wrong(new Error(data.error));
    else done(data.text);
  });
  await send({ modules, code, disk });
  return (text) => send({ text });
};
