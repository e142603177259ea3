// Holds every dashboard against Grafana's own types, with its own compiler: a misspelt key, a word
// that an enumeration does not have, a missing field. It first shows that it finds such things.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const dashboards = join(here, '..', '..', '..', 'grafana');
const types = join(here, 'node_modules/@grafana/schema/dist/esm/raw/dashboard/x/dashboard_types.gen');

// JSON has the values of enumerations, not their names.
const head = `import type { Dashboard } from ${JSON.stringify(types)};
type Plain<T> = T extends string ? \`\${T}\` extends infer U ? U | T : T
  : T extends (infer A)[] ? Plain<A>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
`;

function check(texts) {
  const folder = mkdtempSync(join(here, 'check-'));
  try {
    const files = Object.entries(texts).map(([name, text]) => {
      const file = join(folder, `${name}.ts`);
      writeFileSync(file, `${head}const dashboard: Plain<Dashboard> = ${text};\nexport default dashboard;\n`);
      return file;
    });
    const tsc = join(here, 'node_modules/.bin/tsc');
    const options = '--noEmit --strict false --skipLibCheck --module esnext --moduleResolution bundler --target es2022';
    const done = spawnSync(tsc, [...options.split(' '), ...files], { encoding: 'utf8' });
    return { ok: done.status === 0, said: done.stdout + done.stderr };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const found = readdirSync(dashboards).filter((name) => name.endsWith('.json'));

// What an annotation asks for belongs to its data source, and is in no type of the dashboard's.
function read(name) {
  const dashboard = JSON.parse(readFileSync(join(dashboards, name), 'utf8'));
  for (const annotation of dashboard.annotations.list) {
    for (const own of ['expr', 'step', 'useValueForTime', 'titleFormat', 'textFormat']) delete annotation[own];
  }
  return JSON.stringify(dashboard, null, 1);
}

const texts = Object.fromEntries(found.map((name) => [name, read(name)]));
const [first] = Object.values(texts);
for (const [right, wrong] of [['"graphTooltip": 1', '"graphToolTip": 1'], ['"mode": "absolute"', '"mode": "absolut"']]) {
  if (!first.includes(right) || check({ wrong: first.replace(right, wrong) }).ok) {
    console.error(`the check does not find ${wrong}: it proves nothing`);
    process.exit(2);
  }
}
const { ok, said } = check(texts);
console.log(said + (ok ? `${found.length} dashboards are what Grafana's types ask for` : 'see above'));
process.exit(ok ? 0 : 1);
