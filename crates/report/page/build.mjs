// Builds dist/report.js and dist/report.css from src: bundled, minified, licences of the libraries in the head.
import { build } from "esbuild";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url)), at = (...path) => join(here, ...path);
// A file that stays as it was is not written: cargo would build what includes it again.
function write(path, text) {
  if (!existsSync(path) || readFileSync(path, "utf8") !== text) writeFileSync(path, text);
}
const options = { bundle: true, minify: true, target: "es2020", charset: "utf8", legalComments: "none", write: false, metafile: true };

const script = await build({ ...options, entryPoints: [at("src/main.js")], format: "iife", outdir: at("dist") });
const packages = [...new Set(Object.keys(script.metafile.inputs).map(input => input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1]).filter(Boolean))].sort();
const texts = new Map();
for (const name of packages) {
  const { version } = JSON.parse(readFileSync(at("node_modules", name, "package.json")));
  const text = readFileSync(at("node_modules", name, "LICENSE"), "utf8").trim().replaceAll("*/", "* /");
  texts.set(text, [...(texts.get(text) ?? []), `${name} ${version}`]);
}
const licences = [...texts].map(([text, names]) => `${names.join(", ")}:\n\n${text}`).join("\n\n");
const code = script.outputFiles[0].text;
if (/<\/script/i.test(code + licences) || code.includes("<!--")) throw new Error("the script would end its element");
write(at("dist/report.js"), `/*\nBuilt from crates/report/page; contains\n\n${licences}\n*/\n${code}`);

const style = await build({ ...options, entryPoints: [at("src/style.css")], outdir: at("dist") });
write(at("dist/report.css"), style.outputFiles[0].text);
console.log(`report.js ${code.length + licences.length} bytes, of it licences ${licences.length}; report.css ${style.outputFiles[0].text.length} bytes`);
