// Puts the bundle of dist into a page that `edgecut report` wrote, so that the script can be worked on without building
// edgecut: node preview.mjs PAGE.html OUT.html
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url)), [from, to] = process.argv.slice(2);
const read = path => readFileSync(join(here, path), "utf8");
const page = readFileSync(from, "utf8");
const data = page.match(/<script type="application\/json" id="data">[\s\S]*?<\/script>/)[0];
const head = page.slice(0, page.indexOf("<style>"));
writeFileSync(to, `${head}<style>\n${read("../src/theme.css")}${read("dist/report.css")}</style>\n</head>\n<body>\n<div id="page"></div>\n${data}\n<script>\n${read("dist/report.js")}</script>\n</body>\n</html>\n`);
