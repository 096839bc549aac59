// Reading the patterns that were packed (lens/pack.py). Needs `facts` and `block`.
const [down, across] = facts.grid, patches = down * across, prefix = facts.prefix.length;

function bytes(name) {
  const text = atob(block(name)), array = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) array[i] = text.charCodeAt(i);
  return array.buffer;
}

// The heads of a layer stand behind those of the layers before it.
const starts = facts.by_layer.map((_, layer) => facts.by_layer.slice(0, layer).reduce((a, b) => a + b, 0));

// row(layer, head, query): the weights of all tokens. What answers is kept as it is; query -1 is the mean of several.
const row = (() => {
  const n = facts.tokens, exact = new Float32Array(bytes("answer"));
  const stored = { rows: storedRows, few: storedFew }[facts.patterns.kind](n);
  return (layer, head, query) => {
    const place = starts[layer] + head;
    return query === facts.answering.token ? exact.subarray(place * n, place * n + n) : stored(place, query);
  };
})();

function storedRows(n) {
  const { bits, queries } = facts.patterns.about, whole = 2 ** bits - 1;
  const fractions = new { 32: Float32Array, 16: Uint16Array, 8: Uint8Array }[bits](bytes("fractions"));
  const tops = bits === 32 ? null : new Float32Array(bytes("tops"));
  return (place, query) => {
    const at = place * queries.length + nearest(queries, query), some = fractions.subarray(at * n, at * n + n);
    return tops ? Float32Array.from(some, (fraction) => (fraction * tops[at]) / whole) : some;
  };
}

function storedFew(n) {
  const { slots, sizes } = facts.patterns.about, ways = {};
  if (sizes["largest-index"]) ways.largest = storedLargest(n, sizes["largest-index"]);
  for (const way of ["bytes", "halves"]) if (sizes[way + "-q"]) ways[way] = storedFactors(n, way, sizes[way + "-steps"], sizes[way + "-q"]);
  return (place, query) => ways[slots[place][0]](slots[place][1], query);
}

// softmax(q k^T), of so many numbers each in so many bytes: the first in one byte, the others in half of one.
function storedFactors(n, way, rank, size) {
  const fine = 2 * size - rank;
  const read = (name) => {
    const given = new Uint8Array(bytes(`${way}-${name}`)), count = given.length / size, out = new Int8Array(count * rank);
    for (let i = 0; i < count; i++) for (let r = 0; r < rank; r++) {
      const pair = given[i * size + fine + ((r - fine) >> 1)];
      out[i * rank + r] = r < fine ? (given[i * size + r] << 24) >> 24 : ((r - fine) % 2 ? pair >> 4 : pair & 15) - 8;
    }
    return out;
  };
  const q = read("q"), k = read("k"), steps = new Float32Array(bytes(`${way}-steps`)), scaled = new Float32Array(rank);
  return (slot, query) => {
    const start = slot * n * rank, out = new Float32Array(n);
    for (let r = 0; r < rank; r++) scaled[r] = q[start + query * rank + r] * steps[slot * rank + r];
    let top = -Infinity, sum = 0;
    for (let j = 0; j < n; j++) {
      let score = 0;
      for (let r = 0, at = start + j * rank; r < rank; r++) score += scaled[r] * k[at + r];
      out[j] = score;
      if (score > top) top = score;
    }
    for (let j = 0; j < n; j++) sum += out[j] = Math.exp(out[j] - top);
    for (let j = 0; j < n; j++) out[j] /= sum;
    return out;
  };
}

// The largest weights of a row, and what is left for each of the others.
function storedLargest(n, count) {
  const index = new Uint16Array(bytes("largest-index")), fraction = new Uint8Array(bytes("largest-fraction")), top = new Float32Array(bytes("largest-top"));
  return (slot, query) => {
    const at = slot * n + query, out = new Float32Array(n).fill(top[2 * at + 1]);
    for (let i = at * count; i < (at + 1) * count; i++) out[index[i]] = (fraction[i] * top[2 * at]) / 255;
    return out;
  };
}

// Of the queries that were kept, the place of the one nearest to a token.
function nearest(kept, query) {
  const at = kept.indexOf(query);
  if (at >= 0) return at;
  const y = Math.floor((query - prefix) / across), x = (query - prefix) % across;
  let best = 0, least = Infinity;
  kept.forEach((token, place) => {
    if (token < prefix) return;
    const away = Math.hypot(Math.floor((token - prefix) / across) - y, ((token - prefix) % across) - x);
    if (away < least) [best, least] = [place, away];
  });
  return best;
}

// Weights of tokens as weights of patches: the same, but for visual tokens, which are groups of patches.
function onPatches(weights) {
  if (!facts.groups) return weights.subarray(prefix);
  const out = new Float32Array(patches);
  facts.groups.forEach((fractions, token) => fractions.forEach((fraction, patch) => (out[patch] += weights[prefix + token] * fraction)));
  return out;
}

function attended(layer, head, query) {
  if (head >= 0) return row(layer, head, query);
  const mean = new Float32Array(facts.tokens);
  const heads = facts.by_layer[layer];
  for (let h = 0; h < heads; h++) row(layer, h, query).forEach((weight, j) => (mean[j] += weight / heads));
  return mean;
}
