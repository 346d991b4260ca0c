"use strict";
// Draws what refgf/site/answers.py computes. No time is computed here: the page shows answers that
// were exported when the site was built, and loads Pyodide for the first setting that was not.
(() => {
  const all = window.EXPLORER;
  const at = (id) => document.getElementById(id);
  const exported = new Map(all.exported.map((e) => [JSON.stringify(e.setting), e.answer]));
  const lists = { rate: all.rates, latency: all.latencies, ranks: all.ranks, theta: all.thetas, percent: all.percents };
  const KEYS = ["network", "machine", "ranks", "percent", "wire"]; // of a measured setting
  const needPython = ["rate", "latency", "theta", "percent", "wire"];
  let python = null;
  let loading = false;
  let waiting = false;
  let asking = false;
  let answered = {};
  let why = "";
  const say = (text) => { if (at("state").textContent !== text) at("state").textContent = text; };

  const digits = (x) => String(Number(x.toPrecision(4)));
  let inSeconds = false; // or in milliseconds: one unit for all times of an answer
  const time = (s) => (inSeconds ? `${digits(s)} s` : `${digits(1e3 * s)} ms`);
  function bytes(n) {
    if (n === null) return "infinite";
    const units = ["B", "KiB", "MiB", "GiB"];
    let unit = 0;
    while (n >= 1024 && unit < 3) { n /= 1024; unit += 1; }
    return `${digits(n)} ${units[unit]}`;
  }
  function ticks(last, count) { // 0, and at most so many round numbers up to the last
    const power = 10 ** Math.floor(Math.log10(last / count));
    const step = power * [1, 2, 5, 10].find((n) => n * power >= last / count);
    return Array.from({ length: Math.floor(last / step) + 1 }, (_, i) => i * step);
  }
  function make(name, attributes = {}, text = "", svg = false) {
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  }
  const draw = (name, attributes, text = "") => make(name, attributes, text, true);
  const room = (id) => Math.max(240, at(id).clientWidth); // the width of a drawing
  const chosen = (id) => lists[id][Number(at(id).value)];
  const machine = () => all.machines[at("machine").value];
  const ownLink = () => chosen("rate") === machine().gbit && chosen("latency") === machine().latency_us;

  function setting() { // the keys of explorer.py's `setting`, in its order
    const [batch, pace] = machine().pace[at("network").value];
    return {
      network: at("network").value, batch, samples_per_s: pace, gbit: chosen("rate"),
      latency_us: chosen("latency"), ranks: chosen("ranks"), theta: chosen("theta"),
      percent: chosen("percent"), wire: at("wire").value,
    };
  }

  // ---- drawing ----

  function drawTimes(found) {
    const rows = ["your theta", "best theta", "MG-WFBP"];
    const [left, height] = [80, 34];
    const width = room("times") - left - 25;
    const end = Math.max(...rows.map((name) => found.steps[name].step_s), found.compute_s);
    const x = (s) => left + width * s / end;
    const svg = draw("svg", {
      width: left + width + 25, height: height * 4 + 30, role: "img",
      "aria-label": rows.map((name) => `${name}: ${time(found.steps[name].step_s)}`).join("; "),
    });
    svg.append(draw("text", { x: 0, y: 20 }, "computation"));
    svg.append(draw("rect", { class: "compute", x: left, y: 6, width: x(found.compute_s) - left, height: 20 }));
    for (const s of found.ready_s) svg.append(draw("path", { class: "axis", d: `M${x(s)} 6 V26` }));
    rows.forEach((name, row) => {
      const y = height * (row + 1) + 6;
      svg.append(draw("text", { x: 0, y: y + 14 }, name));
      svg.append(draw("path", { class: "axis", d: `M${left} ${y + 20} H${x(found.steps[name].step_s)}` }));
      for (const [start, stop, size, first, after] of found.steps[name].calls) {
        const bar = draw("rect", {
          class: `row${row}`, x: x(start), y, width: Math.max(1, x(stop) - x(start) - 1), height: 20,
        });
        bar.append(draw("title", {}, `gradients ${first} to ${after - 1}, ${bytes(size)}: ${time(start)} to ${time(stop)}`));
        svg.append(bar);
      }
    });
    for (const s of ticks(end, Math.min(8, Math.floor(width / 60)))) {
      svg.append(draw("text", { x: x(s), y: height * 4 + 20, "text-anchor": "middle" }, time(s)));
    }
    at("times").replaceChildren(svg);
    at("total").textContent = time(found.steps["your theta"].step_s);
  }

  function drawSteps(found) {
    const measured = points().filter((m) => m.grouping);
    const column = measured.length ? [`measured, lesson ${measured[0].lesson}`] : [];
    const head = make("tr");
    for (const name of ["grouping", "theta", "step", "calls", "scaling efficiency", ...column]) {
      head.append(make("th", { scope: "col" }, name));
    }
    const thetas = { "your theta": chosen("theta"), "best theta": found.best_theta, eager: 0, "one call": null };
    const rows = Object.entries(found.steps).map(([name, step]) => {
      const row = make("tr", { "data-name": name, "data-seconds": step.step_s, "data-calls": step.calls.length });
      const theta = name in thetas ? bytes(thetas[name]) : "none";
      const cells = [theta, time(step.step_s), step.calls.length, `${step.efficiency.toFixed(1)} %`];
      if (column.length) cells.push(measured.filter((m) => m.grouping === name).map((m) => time(m.step_s)).join(""));
      row.append(make("th", { scope: "row" }, name), ...cells.map((text) => make("td", {}, text)));
      return row;
    });
    at("steps").replaceChildren(head, ...rows);
    at("groups").replaceChildren(...found.steps["MG-WFBP"].calls.map(([, , size, first, after]) =>
      make("li", {}, `${first} to ${after - 1}, ${bytes(size)}`)));
  }

  function points() { // that lessons measured with this setting, at any theta
    const now = { ...setting(), machine: at("machine").value };
    return ownLink() ? all.measured.filter((m) => KEYS.every((key) => m[key] === now[key])) : [];
  }

  function drawSweep(found) {
    const [left, height, inset] = [60, 240, 14]; // inset: no mark touches an axis
    const width = room("sweep") - left - 20;
    const dots = points().filter((m) => !m.grouping);
    const finite = found.sweep.map(([theta]) => theta).filter((theta) => theta);
    const [low, high] = [Math.log2(Math.min(...finite)) - 1, Math.log2(Math.max(...finite)) + 1];
    const x = (theta) => { // 0 at the left end, infinity at the right
      const power = theta === null ? high : theta === 0 ? low : Math.log2(theta);
      return left + inset + (width - 2 * inset) * (Math.min(high, Math.max(low, power)) - low) / (high - low);
    };
    const top = 1.05 * Math.max(...found.sweep.map(([, s]) => s), ...dots.map((m) => m.step_s));
    const y = (s) => 12 + height * (1 - s / top);
    const own = found.steps["your theta"].step_s;
    const svg = draw("svg", {
      width: left + width + 20, height: height + 60, role: "img",
      "aria-label": `the best theta is ${bytes(found.best_theta)}: ${time(found.steps["best theta"].step_s)}`,
    });
    svg.append(draw("path", { class: "axis", d: `M${left} 12 V${y(0)} H${left + width}` }));
    svg.append(draw("path", { class: "axis dashed", d: `M${left} ${y(found.compute_s)} H${left + width}` }));
    for (const s of ticks(top, 5)) {
      svg.append(draw("text", { x: left - 6, y: y(s) + 4, "text-anchor": "end" }, time(s)));
    }
    const marks = [0];
    for (let n = 10; n < 32; n += 2) { // as many labels as there is room for
      const apart = Math.min(x(2 ** n) - x(marks.at(-1)), x(null) - x(2 ** n));
      if (apart > 50) marks.push(2 ** n);
    }
    for (const theta of [...marks, null]) {
      svg.append(draw("text", { x: x(theta), y: y(0) + 20, "text-anchor": "middle" }, bytes(theta)));
    }
    svg.append(draw("text", { x: left + width / 2, y: y(0) + 38, "text-anchor": "middle" }, "theta"));
    const line = found.sweep.map(([theta, s], i) => `${i ? "L" : "M"}${x(theta)} ${y(s)}`).join(" ");
    svg.append(draw("path", { class: "curve", d: line }));
    for (const m of dots) {
      const [cx, cy] = [x(m.theta), y(m.step_s)];
      svg.append(draw("path", { class: "dot", d: `M${cx - 5} ${cy - 5} l10 10 m0 -10 l-10 10` }));
    }
    const [cx, cy] = [x(found.best_theta), y(found.steps["best theta"].step_s)];
    svg.append(draw("circle", { class: "best", cx, cy, r: 7 }));
    svg.append(draw("rect", { class: "own", x: x(chosen("theta")) - 4, y: y(own) - 4, width: 8, height: 8 }));
    at("sweep").replaceChildren(svg);
    const lessons = [...new Set(points().map((m) => m.lesson))];
    at("measured").textContent = dots.length
      ? `Crosses are steps that lesson${lessons.length > 1 ? "s" : ""} ${lessons.join(", ")} measured, divided by the time ` +
        "dilation. They include what a call costs this emulation, which the curve leaves out. At an infinite " +
        "theta the one call follows backward, with overlap or without."
      : "";
  }

  // ---- what a reader does ----

  function labels() {
    const named = {
      rate: `${chosen("rate")} Gbit/s`, latency: `${chosen("latency")} us`, ranks: chosen("ranks"),
      theta: bytes(chosen("theta")), percent: chosen("percent") === 100 ? "all" : `${chosen("percent")} %`,
    };
    for (const [id, text] of Object.entries(named)) {
      at(`${id}-is`).textContent = text;
      at(id).setAttribute("aria-valuetext", text);
    }
    at("machine-is").textContent = ownLink() ? "" : "(link changed)";
    const [batch, pace, source] = machine().pace[at("network").value];
    at("pace").textContent = `Computation: ${batch} samples a rank, ${digits(pace)} samples per second. ${source}`;
  }
  function redraw() {
    waiting = false;
    labels();
    const asked = JSON.stringify(setting());
    const found = exported.get(asked) || (answered.asked === asked && answered.found);
    document.body.classList.toggle("stale", !found);
    if (!found && !python && !why) load();
    at("state").dataset.state = python ? "ready" : why ? "absent" : loading ? "loading" : "exported";
    at("state").dataset.setting = found ? asked : "";
    if (found) {
      say(python ? "Computed by this project's Python, in this page." :
        why || (loading ? "Exported numbers; Python is being loaded." : "Exported numbers. Other settings load Python once (13 MB)."));
      inSeconds = Math.max(...found.sweep.map(([, s]) => s)) >= 10;
      drawTimes(found); drawSteps(found); drawSweep(found);
      return;
    }
    say(python ? "Python computes." : "These numbers wait for Python, which is being loaded.");
    if (!python || asking) return;
    asking = true; // one question at a time: a slider that is dragged skips settings
    python(asked).then((text) => {
      answered = { asked, found: JSON.parse(text) };
      asking = false;
      redraw();
    }, (problem) => {
      asking = false;
      say(`Python says: ${problem.message}`);
    });
  }
  function later() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(redraw);
  }
  function place(id, value) {
    Object.assign(at(id), { min: 0, max: lists[id].length - 1, step: 1 });
    at(id).value = Math.max(0, lists[id].indexOf(value));
  }
  function asMachine() {
    place("rate", machine().gbit);
    place("latency", machine().latency_us);
    later();
  }
  function load() {
    if (loading) return;
    loading = true;
    window.loadScript("modules.js")
      .then(() => window.startPython(window.MODULES, "from refgf.site.answers import answer; answer"))
      .then((found) => { python = found; redraw(); }, (problem) => without(`${problem.message}.`));
  }
  function without(reason) { // only what was exported
    why = `Only exported numbers: ${reason}`;
    lists.ranks = all.exportedRanks;
    place("ranks", all.start.ranks);
    place("theta", all.start.theta);
    place("percent", 100);
    at("wire").value = all.wires[0];
    asMachine();
    for (const id of needPython) at(id).disabled = true;
  }
  for (const [id, values] of [["network", all.networks], ["machine", Object.keys(all.machines)], ["wire", all.wires]]) {
    at(id).replaceChildren(...values.map((value) => make("option", { value }, value)));
  }
  at("network").value = "ResNet-50";
  place("ranks", all.start.ranks);
  place("theta", all.start.theta);
  place("percent", 100);
  asMachine();
  window.inAddress(at("explorer"), lists);
  for (const id of Object.keys(lists)) at(id).addEventListener("input", later);
  at("machine").addEventListener("change", asMachine);
  for (const id of ["network", "wire"]) at(id).addEventListener("change", later);
  window.addEventListener("resize", later);
  const settings = new Map(); // that lessons measured: {keys: lessons}
  for (const m of all.measured) {
    const keys = JSON.stringify(KEYS.map((key) => m[key]));
    settings.set(keys, (settings.get(keys) || new Set()).add(m.lesson));
  }
  at("lessons").replaceChildren(...[...settings].map(([keys, lessons]) => {
    const [network, name, ranks, percent, wire] = JSON.parse(keys);
    const dense = percent === 100 ? "" : `, ${percent} % of the chunks`;
    const button = make("button", { type: "button" }, `${network}, ${ranks} ranks, ${wire}${dense}: lesson ${[...lessons].join(", ")}`);
    button.addEventListener("click", () => {
      Object.assign(at("network"), { value: network });
      Object.assign(at("machine"), { value: name });
      Object.assign(at("wire"), { value: wire });
      place("ranks", ranks); place("percent", percent); place("theta", all.start.theta);
      asMachine();
      at("explorer").dispatchEvent(new Event("input"));
    });
    return button;
  }));
  at("explorer").addEventListener("submit", (event) => event.preventDefault());
  redraw();

  if (!all.python) without("this site was built without Pyodide.");
})();
