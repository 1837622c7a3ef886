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
  const hasPlans = links.some(link => link.transfers), hasMeasured = links.some(link => link.latency_us !== null);
  const ofLink = [
    ["link", link => `${link.from} → ${link.to}`],
    hasMeasured && ["latency", link => format.time(link.latency_us)],
    hasMeasured && ["rate", link => format.byteRate(link.bytes_per_us)],
    hasPlans && ["transfers", link => String(link.transfers)],
    hasPlans && ["bytes an input", link => format.bytes(link.bytes)],
    hasPlans && ["time an input", link => format.time(link.time_us)],
  ].filter(Boolean);
  return [
    devices.length > 0 && grid(columns.map(([name]) => name), devices.map(device => columns.map(([, value]) => value(device)))),
    links.length > 0 && [html("h3", {}, hasPlans ? "Links that the plans use" : "Links"),
      grid(ofLink.map(([name]) => name), links.map(link => ofLink.map(([, value]) => value(link))), [1, 2, 3, 4, 5])],
  ];
}
