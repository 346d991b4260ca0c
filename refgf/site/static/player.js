"use strict";
// Replays schedules that Python exported (refgf/site/player.py). Nothing is computed here but
// counts of exported messages, and these counts times alpha and beta.
(() => {
  const all = window.PLAYER;
  const at = (id) => document.getElementById(id);
  const [FROM, TO, START, COUNT, STEP, ELEMENTS] = [0, 1, 2, 3, 4, 5]; // of a message
  const state = { algorithm: "ring", ranks: 4, step: 0, rank: 0, element: 0, timer: null };
  let plan = null;

  // ---- words ----

  const digits = (x) => String(Number(x.toPrecision(3)));
  function seconds(t) {
    if (t >= 1) return `${digits(t)} s`;
    return t >= 1e-3 ? `${digits(t * 1e3)} ms` : `${digits(t * 1e6)} us`;
  }
  function bytes(n) {
    const units = ["B", "KiB", "MiB", "GiB"];
    let unit = 0;
    while (n >= 1024 && unit < 3) { n /= 1024; unit += 1; }
    return `${digits(n)} ${units[unit]}`;
  }
  const many = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  const colour = (rank) => `hsl(${Math.round(360 * rank / state.ranks)} 70% 45%)`;

  // ---- what Python exported ----

  const alpha = () => all.alphas[at("alpha").value];
  const beta = () => 8 / (all.rates[at("rate").value] * 1e9);
  const elementBytes = () => all.bytes[at("bytes").value] / plan.elements;
  const arrival = (m) => m[STEP] * alpha() + m[ELEMENTS] * elementBytes() * beta();
  const duration = (message) => alpha() + message[COUNT] * elementBytes() * beta();
  const total = () => plan.messages.reduce((latest, m) => Math.max(latest, arrival(m)), 0);
  const steps = () => plan.messages[plan.messages.length - 1][STEP];
  const now = () => plan.messages.filter((m) => m[STEP] === state.step);

  function leaves(tree) {
    const node = plan.trees[tree];
    return Array.isArray(node) ? node.flatMap(leaves) : [node];
  }
  function sum(tree, outer = true) {
    const node = plan.trees[tree];
    if (!Array.isArray(node)) return `x${node}`;
    const text = node.map((child) => sum(child, false)).join(" + ");
    return outer ? text : `(${text})`;
  }
  function held() { // the tree of each cell after this step, and what waits in a buffer
    const ranks = Array.from({ length: state.ranks }, (_, rank) => rank);
    const own = new Map();
    plan.trees.forEach((node, tree) => { if (!Array.isArray(node)) own.set(node, tree); });
    const cells = ranks.map((rank) =>
      Array.from({ length: plan.elements }, () => ({ tree: own.get(rank), waits: [], isNew: false })));
    for (const [step, rank, element, whose] of plan.buffered) {
      if (step > state.step) continue;
      cells[rank][element].waits.push(whose);
      cells[rank][element].isNew ||= step === state.step;
    }
    for (const [step, rank, element, tree] of plan.writes) {
      if (step > state.step) continue;
      cells[rank][element] = { tree, waits: [], isNew: step === state.step };
    }
    return cells;
  }

  // ---- drawing ----

  function make(name, attributes = {}, text = "") {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  }
  function draw(name, attributes, text = "") {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  }
  function bar(ranks) { // a stripe for each rank that is held
    const width = 100 / state.ranks;
    const stripes = ranks.map((rank) => {
      const [a, b] = [rank * width, (rank + 1) * width];
      return `linear-gradient(90deg, transparent ${a}%, ${colour(rank)} ${a}% ${b}%, transparent ${b}%)`;
    });
    return stripes.join(",");
  }

  function drawVector() {
    const table = at("vector");
    const focused = table.contains(document.activeElement);
    const head = make("tr", { role: "row" });
    head.append(make("th", { role: "columnheader", scope: "col" }, "rank"));
    for (let i = 0; i < plan.elements; i++) {
      head.append(make("th", { role: "columnheader", scope: "col" }, i));
    }
    const rows = [head];
    const sending = now();
    held().forEach((cells, rank) => {
      const row = make("tr", { role: "row" });
      row.append(make("th", { role: "rowheader", scope: "row" }, rank));
      cells.forEach((cell, element) => {
        const ranks = leaves(cell.tree);
        const inside = (m) => m[FROM] === rank && m[START] <= element && element < m[START] + m[COUNT];
        const chosen = rank === state.rank && element === state.element;
        const waits = cell.waits.length ? `; buffered: ranks ${cell.waits.join(", ")}` : "";
        const about = `rank ${rank}, element ${element}: sum of ${ranks.length} of ${state.ranks} ranks`;
        const button = make("button", {
          type: "button", tabindex: chosen ? 0 : -1, "data-cell": `${rank}-${element}`,
          "aria-label": about + waits, title: about + waits,
        }, cell.waits.length ? `${ranks.length}+${cell.waits.length}` : ranks.length);
        button.classList.toggle("done", ranks.length === state.ranks);
        button.classList.toggle("new", cell.isNew);
        button.classList.toggle("sent", sending.some(inside));
        const stripes = make("span", { class: "bar" });
        stripes.style.backgroundImage = bar([...ranks, ...cell.waits]);
        button.append(stripes);
        button.addEventListener("click", () => choose(rank, element));
        const place = make("td", { role: "gridcell", "aria-selected": chosen });
        if (chosen) button.style.boxShadow = "0 0 0 2px var(--accent)";
        place.append(button);
        row.append(place);
      });
      rows.push(row);
    });
    table.replaceChildren(...rows);
    if (focused) focusCell();
  }
  function focusCell() {
    at("vector").querySelector(`[data-cell="${state.rank}-${state.element}"]`).focus();
  }

  function drawTree() {
    const cell = held()[state.rank][state.element];
    const ranks = leaves(cell.tree);
    at("tree-said").textContent =
      `Rank ${state.rank}, element ${state.element}: ${sum(cell.tree)}` +
      (cell.waits.length ? `; buffered: ${cell.waits.map((rank) => `x${rank}`).join(", ")}` : "");
    const depth = (tree) => {
      const node = plan.trees[tree];
      return Array.isArray(node) ? 1 + Math.max(...node.map(depth)) : 0;
    };
    const deepest = depth(cell.tree);
    const [width, height] = [34, 26];
    const svg = draw("svg", {
      width: ranks.length * width, height: (deepest + 1) * height + 10, role: "img",
      "aria-label": `summation tree: ${sum(cell.tree)}`,
    });
    let place = 0;
    const add = (tree) => { // -> x of its root
      const node = plan.trees[tree];
      const y = (deepest - depth(tree)) * height + 16;
      if (!Array.isArray(node)) {
        const x = (place++ + 0.5) * width;
        const box = { x: x - 14, y: deepest * height + 4, width: 28, height: 5, fill: colour(node) };
        const text = { x, y: deepest * height + 24, "text-anchor": "middle" };
        svg.append(draw("rect", box), draw("text", text, `x${node}`));
        return x;
      }
      const children = node.map(add);
      const x = (children[0] + children[1]) / 2;
      node.forEach((child, i) => {
        const below = plan.trees[child];
        const end = Array.isArray(below) ? (deepest - depth(child)) * height + 8 : deepest * height + 4;
        svg.append(draw("path", { class: "branch", d: `M${x} ${y + 3} L${children[i]} ${end}` }));
      });
      svg.append(draw("text", { x, y, "text-anchor": "middle" }, "+"));
      return x;
    };
    add(cell.tree);
    at("tree").replaceChildren(svg);
  }

  function drawTimes() {
    const end = total();
    const [gap, height, top] = [56, 420, 24];
    const width = gap * state.ranks;
    const svg = draw("svg", {
      width, height: height + 2 * top, role: "img",
      "aria-label": `time line: the last message arrives after ${seconds(end)}`,
    });
    const x = (rank) => (rank + 0.5) * gap;
    const y = (time) => top + height * time / end;
    for (let rank = 0; rank < state.ranks; rank++) {
      svg.append(draw("text", { x: x(rank), y: 14, "text-anchor": "middle" }, `rank ${rank}`));
      svg.append(draw("path", { class: "axis", d: `M${x(rank)} ${top} V${top + height}` }));
    }
    for (const m of plan.messages) {
      const arrives = arrival(m);
      svg.append(draw("line", {
        x1: x(m[FROM]), y1: y(arrives - duration(m)), x2: x(m[TO]), y2: y(arrives),
        stroke: colour(m[FROM]), "stroke-width": 1.5,
        class: m[STEP] === state.step ? "now" : m[STEP] > state.step ? "later" : "before",
      }));
    }
    svg.append(draw("text", { x: 4, y: top + height + 16 }, seconds(end)));
    at("times").replaceChildren(svg);
    at("total").textContent = `${seconds(end)} in all`;
    at("total").dataset.seconds = end;
  }

  function drawCounts() {
    const sent = plan.messages.filter((m) => m[STEP] <= state.step);
    const size = elementBytes();
    const count = (messages) => messages.reduce((n, m) => n + m[COUNT], 0);
    at("said").textContent = `Step ${state.step} of ${steps()}: ${many(now().length, "message")}. ` +
      `All ranks so far: ${many(sent.length, "message")}, ${bytes(count(sent) * size)}.`;
    at("messages").replaceChildren(...now().map((m) => {
      const last = m[START] + m[COUNT] - 1;
      const which = m[COUNT] === 1 ? `element ${m[START]}` : `elements ${m[START]} to ${last}`;
      return make("li", {}, `rank ${m[FROM]} sends ${which} to rank ${m[TO]}`);
    }));
    const head = make("tr");
    for (const name of ["rank", "messages so far", "bytes so far", "messages", "bytes"]) {
      head.append(make("th", { scope: "col" }, name));
    }
    const rows = plan.sent.map(([messages, elements], rank) => {
      const own = sent.filter((m) => m[FROM] === rank);
      const row = make("tr");
      const cells = [own.length, bytes(count(own) * size), messages, bytes(elements * size)];
      row.append(make("th", { scope: "row" }, rank), ...cells.map((text) => make("td", {}, text)));
      return row;
    });
    at("sent").replaceChildren(head, ...rows);
  }

  function labels() {
    const rate = all.rates[at("rate").value];
    const named = { alpha: seconds(alpha()), rate: `${digits(rate)} Gbit/s`, bytes: bytes(all.bytes[at("bytes").value]) };
    for (const [id, text] of Object.entries(named)) {
      at(`${id}-is`).textContent = text;
      at(id).setAttribute("aria-valuetext", text);
    }
    at("step").setAttribute("aria-valuetext", `step ${state.step} of ${steps()}`);
  }
  function redraw() {
    at("step").max = steps();
    at("step").value = state.step;
    labels(); drawVector(); drawTree(); drawCounts(); drawTimes();
    const where = [state.algorithm, state.ranks, state.step].map(encodeURIComponent).join("/");
    history.replaceState(null, "", `#${where}`);
  }

  // ---- what a reader does ----

  function choose(rank, element) {
    Object.assign(state, { rank, element });
    drawVector(); drawTree(); focusCell();
  }
  function go(step) {
    state.step = Math.min(steps(), Math.max(0, step));
    if (state.step === steps()) pause();
    redraw();
  }
  function pause() {
    clearInterval(state.timer);
    state.timer = null;
    at("play").textContent = "play";
  }
  function play() {
    if (state.timer) { pause(); return; }
    if (state.step === steps()) state.step = 0;
    at("play").textContent = "pause";
    state.timer = setInterval(() => go(state.step + 1), 800);
    go(state.step + 1);
  }
  function options(id, values, chosen) {
    at(id).replaceChildren(...values.map((value) => make("option", { value }, value)));
    at(id).value = chosen;
  }
  function load(step = 0) { // the data of one algorithm is a script, so that it works from a disk
    pause();
    const { file, sizes } = all.algorithms[state.algorithm];
    if (!sizes.includes(state.ranks)) state.ranks = sizes.find((size) => size >= 8) || sizes[0];
    options("ranks", sizes, state.ranks);
    const ready = () => {
      plan = all.data[state.algorithm][state.ranks];
      Object.assign(state, { rank: 0, element: 0 });
      at("legend").replaceChildren(...Array.from({ length: state.ranks }, (_, rank) => {
        const named = make("span");
        const box = make("i");
        box.style.background = colour(rank);
        named.append(box, `x${rank}`);
        return named;
      }));
      go(step);
    };
    if (all.data[state.algorithm]) { ready(); return; }
    const wanted = state.algorithm;
    const script = make("script", { src: file });
    script.addEventListener("load", () => { if (state.algorithm === wanted) ready(); });
    document.head.append(script);
  }

  at("algorithm").addEventListener("change", () => { state.algorithm = at("algorithm").value; load(); });
  at("ranks").addEventListener("change", () => { state.ranks = Number(at("ranks").value); load(); });
  for (const [id, values, start] of [["alpha", all.alphas, 1e-5], ["rate", all.rates, 10], ["bytes", all.bytes, 2 ** 20]]) {
    Object.assign(at(id), { min: 0, max: values.length - 1, value: Math.max(0, values.indexOf(start)) });
    at(id).addEventListener("input", () => { labels(); drawCounts(); drawTimes(); });
  }
  at("step").min = 0;
  at("step").addEventListener("input", () => { pause(); go(Number(at("step").value)); });
  at("play").addEventListener("click", play);
  const moves = { first: () => 0, back: () => state.step - 1, forward: () => state.step + 1, last: steps };
  for (const [id, target] of Object.entries(moves)) {
    at(id).addEventListener("click", () => { pause(); go(target()); });
  }
  at("player").addEventListener("submit", (event) => event.preventDefault());
  at("vector").addEventListener("keydown", (event) => {
    const [down, right] = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
    }[event.key] || [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    const inside = (n, size) => Math.min(size - 1, Math.max(0, n));
    choose(inside(state.rank + down, state.ranks), inside(state.element + right, plan.elements));
  });

  const [algorithm, ranks, step] = location.hash.slice(1).split("/").map(decodeURIComponent);
  if (all.algorithms[algorithm]) {
    Object.assign(state, { algorithm, ranks: Number(ranks) });
  }
  options("algorithm", Object.keys(all.algorithms), state.algorithm);
  load(Number(step) || 0);
})();
