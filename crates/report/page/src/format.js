// Quantities as text: times, bytes, counts, rates, shares.

const digits = value => {
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : size >= 1 ? value.toFixed(2) : String(+value.toPrecision(3));
};

function scaled(value, units, least) {
  if (value === 0) return `0 ${units[units.length - 1][1]}`.trim();
  const [unit, name] = units.find(([unit]) => Math.abs(value) >= unit * least) ?? units[units.length - 1];
  return `${digits(value / unit)} ${name}`.trim();
}

const has = value => value !== null && value !== undefined && Number.isFinite(value);

export const time = us => has(us) ? scaled(us, [[1e6, "s"], [1e3, "ms"], [1, "µs"]], 1) : "–";
export const bytes = b => has(b) ? scaled(b, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]], 1) : "–";
export const energy = j => has(j) ? scaled(j, [[1, "J"], [1e-3, "mJ"], [1e-6, "µJ"]], 1) : "–";
export const count = n => has(n) ? scaled(n, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]], 1) : "–";
// FLOPs and bytes in a microsecond, as rates in a second.
export const flopRate = perMicro => has(perMicro) ? `${scaled(perMicro * 1e6, [[1e12, "TFLOP/s"], [1e9, "GFLOP/s"], [1e6, "MFLOP/s"], [1e3, "kFLOP/s"], [1, "FLOP/s"]], 1)}` : "–";
export const byteRate = perMicro => has(perMicro) ? scaled(perMicro * 1e6, [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]], 1) : "–";
// One decimal is all that times of operators are good for.
const percent = part => {
  const size = Math.abs(100 * part);
  return size > 0 && size < 0.05 ? "< 0.1" : size >= 100 ? size.toFixed(0) : size.toFixed(1);
};
const times = part => `× ${digits(part)}`;
export const share = part => !has(part) ? "–" : part > 10 ? times(part) : `${percent(part)} %`;
export const signedShare = part => !has(part) ? "–" : part > 10 ? times(part + 1) : `${part >= 0 ? "+" : "−"}${percent(part)} %`;
// For ticks, which are round: without zeros at the end.
export const round = format => value => format(value).replace(/\.0+(?=\s|$)/, "").replace(/(\.\d*?)0+(?=\s|$)/, "$1");
export const plural = (n, word, many = `${word}s`) => `${n} ${n === 1 ? word : many}`;
export const shortened = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
