// All that the page shows follows from this one object; it is drawn anew when something of it changes.
// patch is the one that is pointed at while a method is shown, or -1.
// It opens on the truest method; on a head, where one was asked for, or where nothing was measured.
const truest = facts.methods.filter((one) => one.gap !== null).sort((one, other) => other.gap - one.gap)[0];
const state = { view: facts.head || !truest ? "heads" : truest.name, layer: facts.layer - 1, head: (facts.head || 0) - 1, query: facts.answering.token, patch: -1, shared: false, playing: null };

const greatest = (values) => values.reduce((a, b) => Math.max(a, b), 0);
const percent = (value) => (100 * value).toFixed(100 * value < 10 ? 2 : 1) + "%";
const place = (patch) => `patch ${Math.floor(patch / across) + 1}, ${(patch % across) + 1}`;
const named = (token) => token === facts.answering.token ? facts.answering.name : token < prefix ? `${facts.prefix[token]} token`
  : facts.groups ? `visual token ${token - prefix + 1}` : place(token - prefix);

// Weights are shown by their square root, lest one large one leave all others dark; the colour bar says so.
const palette = Uint32Array.from(facts.colours, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);
const linear = (fraction) => fraction, root = Math.sqrt;
function paint(canvas, values, top, curve) {
  if (canvas.width !== across) canvas.width = across;
  if (canvas.height !== down) canvas.height = down;
  const context = canvas.getContext("2d"), image = context.createImageData(across, down), pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < values.length; i++) pixels[i] = palette[Math.round(255 * curve(Math.min(1, Math.max(0, values[i]) / (top || 1))))];
  context.putImageData(image, 0, 0);
}

// The layers that have attention.
const attentive = facts.by_layer.flatMap((heads, layer) => (heads ? [layer] : []));

function draw() {
  const cells = [], method = facts.methods.find((one) => one.name === state.view);
  for (const cell of drawn) cells.push(onPatches(row(cell.layer, cell.head, state.query)));
  const tops = cells.map(greatest), all = Math.max(...tops);
  cells.forEach((values, at) => paint(drawn[at].firstChild, values, state.shared ? all : tops[at], root));
  drawn.forEach((cell) => cell.setAttribute("aria-pressed",
    !method && cell.layer === state.layer && (state.head < 0 || cell.head === state.head)));
  const weights = method ? null : attended(state.layer, state.head, state.query);
  const values = method ? Float32Array.from(method.map) : onPatches(weights);
  const most = greatest(values), top = !method && state.shared ? all : most, best = values.indexOf(most);
  const strongest = most > 0 ? `strongest at ${place(best)}: ` : "nowhere more than ";
  paint($("overlay"), values, top, method ? linear : root);
  const shown = (value) => (method ? value.toPrecision(3) : percent(value));
  $("middle").textContent = shown(method ? top / 2 : top / 4);
  $("high").textContent = shown(top);
  $("unit").textContent = method ? method.unit : "fraction of the attention, by its square root";
  $("readout").textContent = method
    ? `${method.name}: ${strongest}${shown(most)}${state.patch < 0 ? "" : `; here, ${place(state.patch)}: ${shown(values[state.patch])}`}`
    : `Layer ${state.layer + 1}, ${state.head < 0 ? "mean of the heads" : "head " + (state.head + 1)}, from ${named(state.query)}: most to ${place(best)}: ${shown(most)}` +
      facts.prefix.map((name, token) => `; to the ${name} token ${shown(weights[token])}`).join("");
  $("from").textContent = `From ${named(state.query)}. The brighter, the more; ${state.shared ? "all on one scale, up to " + percent(all) : "each on its own scale"}.`;
  const patch = method ? state.patch : facts.groups ? -1 : state.query - prefix;
  Object.assign($("mark").style, {
    display: patch < 0 ? "none" : "",
    left: `${(100 * (patch % across)) / across}%`, top: `${(100 * Math.floor(patch / across)) / down}%`,
    width: `${100 / across}%`, height: `${100 / down}%`,
  });
  document.querySelectorAll("#tokens button").forEach((button) => button.setAttribute("aria-pressed", Number(button.dataset.token) === state.query && !method));
  document.querySelectorAll("#methods button").forEach((button) => button.setAttribute("aria-pressed", button.dataset.method === state.view));
  $("shared").checked = state.shared;
  Object.assign(document.body.dataset, { view: state.view, layer: state.layer, head: state.head, query: state.query });
}

let waiting = false;
function change(fields) {
  Object.assign(state, fields);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

// What is there once.
function make(tag, fields, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}
const stage = $("stage"), drawn = [], shape = `${facts.size[1]} / ${facts.size[0]}`;
stage.style.aspectRatio = shape;
const columns = `4.2em repeat(${facts.heads}, minmax(26px, 110px))`;
const titles = Array.from({ length: facts.heads }, (_, h) => make("span", { textContent: facts.heads > 6 ? h + 1 : `head ${h + 1}` }));
$("heads").append(make("div", { className: "row titles" }, make("span", { textContent: facts.heads > 6 ? "head" : "" }), ...titles));
for (let l = 0; l < facts.layers; l++) {
  const line = make("div", { className: "row" }, make("span", { textContent: `layer ${l + 1}` }));
  for (let h = 0; h < facts.by_layer[l]; h++) {
    const canvas = make("canvas"), title = `layer ${l + 1}, head ${h + 1}`;
    canvas.style.aspectRatio = `${across} / ${down}`;
    const cell = make("button", { className: "cell", layer: l, head: h, title, tabIndex: -1, onclick: () => change({ view: "heads", layer: l, head: state.view === "heads" && state.layer === l && state.head === h ? -1 : h }) }, canvas);
    drawn.push(cell);
    line.append(cell);
  }
  $("heads").append(line);
}
document.querySelectorAll("#heads .row").forEach((line) => (line.style.gridTemplateColumns = columns));
const answering = facts.answering.token < 0 ? [[-1, facts.answering.name]] : [];
const others = [...facts.prefix, ...(facts.groups || []).map((_, token) => `visual ${token + 1}`)].map((name, token) => [token, `${name} token`]);
for (const [token, textContent] of [...answering, ...others]) {
  const button = make("button", { textContent, onclick: () => change({ query: token, view: "heads" }) });
  button.dataset.token = token;
  $("tokens").append(button);
}
for (const method of facts.methods) {
  const image = make("img", { src: $("picture").src, alt: "" }), canvas = make("canvas");
  image.style.aspectRatio = shape;
  paint(canvas, method.map, greatest(method.map), linear);
  const gap = method.gap === null ? "" : `gap ${method.gap < 0 ? "" : "+"}${method.gap.toFixed(3)}`;
  const chosen = () => { change({ view: state.view === method.name ? "heads" : method.name, patch: -1 }); stage.focus({ preventScroll: true }); };
  const button = make("button", { className: "method", onclick: chosen, title: method.formula },
    make("div", { className: "pic" }, image, canvas), make("b", { textContent: method.name }),
    ...[gap, method.about].map((textContent) => make("span", { textContent })));
  button.dataset.method = method.name;
  $("methods").append(button);
}

function matrix(table, rows, titles, digits, diverging) {
  const limit = Math.max(...rows.flat().map(Math.abs)) || 1, colours = diverging ? facts.diverging : facts.colours;
  table.append(make("tr", {}, ...["", ...titles].map((textContent) => make("th", { textContent }))));
  rows.forEach((values, at) => {
    const line = make("tr", {}, make("th", { textContent: `layer ${at + 1}` }));
    for (const value of values) {
      if (value === null) { line.append(make("td")); continue; } // a head that is not there
      const colour = colours[Math.round(255 * (diverging ? (value / limit + 1) / 2 : value / limit))];
      const cell = make("td", { textContent: value.toFixed(digits) });
      cell.style.background = `rgb(${colour.join()})`;
      cell.style.color = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 140 ? "#000" : "#fff";
      line.append(cell);
    }
    table.append(line);
  });
}
const heads = titles.map((_, h) => `head ${h + 1}`);
if (facts.writes) matrix($("writes"), facts.writes.heads.map((values, l) => [...values, facts.writes.feed_forward[l]]), [...heads, "feed-forward"], 2, true);
if (facts.distance) matrix($("distance"), facts.distance, heads, 1, false);

const bar = $("scale").getContext("2d"), ramp = bar.createImageData(256, 1);
new Uint32Array(ramp.data.buffer).set(palette);
bar.putImageData(ramp, 0, 0);

// Mouse and touch, then keys.
const between = (value, low, high) => Math.max(low, Math.min(high, value));
function pointed(event) {
  const box = stage.getBoundingClientRect();
  const x = between(Math.floor((across * (event.clientX - box.left)) / box.width), 0, across - 1);
  const y = between(Math.floor((down * (event.clientY - box.top)) / box.height), 0, down - 1);
  const patch = y * across + x, fractions = facts.groups && facts.groups.map((group) => group[patch]);
  const query = prefix + (fractions ? fractions.indexOf(Math.max(...fractions)) : patch);
  if (state.view !== "heads") { if (patch !== state.patch) change({ patch }); }
  else if (query !== state.query) change({ query });
}
stage.addEventListener("pointermove", pointed);
stage.addEventListener("pointerdown", (event) => { stage.focus({ preventScroll: true }); pointed(event); });
stage.addEventListener("pointerleave", () => state.patch >= 0 && change({ patch: -1 }));
const opacity = () => ($("overlay").style.opacity = $("opacity").value / 100);
$("opacity").oninput = opacity;
opacity();
$("shared").onchange = (event) => change({ shared: event.target.checked });
function play() {
  if (state.playing) { clearInterval(state.playing); state.playing = null; }
  else {
    change({ view: "heads", layer: attentive[0] });
    state.playing = setInterval(() => change({ layer: attentive[(attentive.indexOf(state.layer) + 1) % attentive.length] }), 900);
  }
  $("play").setAttribute("aria-pressed", !!state.playing);
  $("play").textContent = state.playing ? "Stop" : "Play the layers";
}
$("play").onclick = play;
function moved(dy, dx) {
  const patch = state.query - prefix, view = "heads";
  if (state.query < prefix) return { query: prefix + (facts.groups ? 0 : Math.floor(down / 2) * across + Math.floor(across / 2)), view };
  if (facts.groups) return { query: prefix + between(patch + dy + dx, 0, facts.groups.length - 1), view };
  return { query: prefix + between(Math.floor(patch / across) + dy, 0, down - 1) * across + between((patch % across) + dx, 0, across - 1), view };
}
const layer = (by) => {
  const next = attentive[between(attentive.indexOf(state.layer) + by, 0, attentive.length - 1)];
  return { layer: next, head: Math.min(state.head, facts.by_layer[next] - 1), view: "heads" };
};
const head = (by) => ({ head: between(state.head + by, -1, facts.by_layer[state.layer] - 1), view: "heads" });
const views = ["heads", ...facts.methods.map((one) => one.name)];
const keys = {
  ArrowLeft: () => moved(0, -1), ArrowRight: () => moved(0, 1), ArrowUp: () => moved(-1, 0), ArrowDown: () => moved(1, 0),
  c: () => ({ query: facts.answering.token, view: "heads" }), "[": () => layer(-1), "]": () => layer(1), ",": () => head(-1), ".": () => head(1),
  m: () => ({ view: views[(views.indexOf(state.view) + 1) % views.length], patch: -1 }), s: () => ({ shared: !state.shared }),
  " ": () => play(),
};
addEventListener("keydown", (event) => {
  const own = event.target.type === "range" || (/INPUT|BUTTON/.test(event.target.tagName) && event.key === " ");
  const scrolls = /^Arrow| /.test(event.key) && !$("left").contains(event.target);
  if (own || scrolls || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  change(keys[event.key]() || {});
});
draw();
stage.focus({ preventScroll: true });
document.body.dataset.ready = "yes";
