// Devices with what they were measured as, and the links that plans use.
import { grid, html } from "./dom.js";
import * as format from "./format.js";

export function cluster({ devices, links }) {
  const has = test => devices.some(test);
  const disturbed = device => !device.rows ? "–" : device.disturbed_rows
    ? html("span", { class: "bad" }, `${device.disturbed_rows} of ${format.plural(device.rows, "row")}, at most ${format.share(device.disturbed)} of the samples`) : "no";
  const columns = [
    ["device", device => device.name], ["hardware", device => device.hardware || "–"], ["engine", device => device.engine || "–"],
    ["threads", device => device.threads === null ? "–" : String(device.threads)],
    has(device => device.governors.length) && ["governor", device => device.governors.join(", ") || "–"],
    has(device => device.load !== null) && ["load of others", device => device.load === null ? "–" : `${device.load.toFixed(2)} processors`],
    has(device => device.rows) && ["disturbed", disturbed],
    has(device => device.measured) && ["measured (UTC)", device => !device.measured ? "–" : device.measured[0] === device.measured[1] ? device.measured[0] : device.measured.join(" to ")],
    has(device => device.limit_bytes !== null) && ["memory limit", device => format.bytes(device.limit_bytes)],
    has(device => device.is_used !== null) && ["used by a plan", device => device.is_used === null ? "–" : device.is_used ? "yes" : "no"],
  ].filter(Boolean);
  return [
    grid(columns.map(([name]) => name), devices.map(device => columns.map(([, value]) => value(device)))),
    links.length > 0 && [html("h3", {}, "Links that the plans use"), grid(["link", "transfers", "bytes an input", "time an input", "rate"], links.map(link => [
      `${link.from} → ${link.to}`, String(link.transfers), format.bytes(link.bytes), format.time(link.time_us), format.byteRate(link.time_us ? link.bytes / link.time_us : null)]), [1, 2, 3, 4])],
  ];
}
