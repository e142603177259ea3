// Takes a picture of each dashboard: node draw.mjs ORDER.json FOLDER. The order names the Prometheus,
// the time, and the dashboards' files.

import { build } from 'esbuild';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const here = dirname(fileURLToPath(import.meta.url));
const [, , orderFile, folder] = process.argv;
const order = JSON.parse(readFileSync(orderFile, 'utf8'));
const browserPath = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/google-chrome'].find(existsSync);
if (!browserPath) {
  console.error('no Chromium here: apt-get install chromium, or name one in CHROMIUM');
  process.exit(1);
}

const built = mkdtempSync(join(tmpdir(), 'jobctl-page-'));
await build({
  entryPoints: [join(here, 'page.tsx')], bundle: true, minify: true, platform: 'browser',
  outfile: join(built, 'page.js'), logLevel: 'error', nodePaths: [join(here, 'node_modules')],
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  loader: { '.svg': 'text', '.ttf': 'dataurl', '.png': 'dataurl', '.woff2': 'dataurl' },
});
const pages = {
  '/': ['text/html', '<!doctype html><link rel=stylesheet href=page.css><div id=root></div><script src=page.js></script>'],
  '/page.js': ['text/javascript', readFileSync(join(built, 'page.js'))],
  '/page.css': ['text/css', existsSync(join(built, 'page.css')) ? readFileSync(join(built, 'page.css')) : ''],
};
const server = createServer((request, response) => {
  const [type, body] = pages[request.url] ?? ['text/plain', ''];
  response.writeHead(200, { 'content-type': `${type}; charset=utf-8` }).end(body);
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const address = `http://127.0.0.1:${server.address().port}/`;

const browser = await chromium.launch({
  executablePath: browserPath,
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
let wrong = 0;
try {
  for (const file of order.dashboards) {
    const dashboard = JSON.parse(readFileSync(file, 'utf8'));
    dashboard.panels = dashboard.panels.filter((panel) => panel.gridPos.y < order.most_rows);
    const width = 1200;
    const page = await browser.newPage({ viewport: { width: width + 24, height: 900 } });
    const complain = (text) => { wrong += 1; console.error(`${dashboard.title}: ${text}`); };
    page.on('pageerror', (error) => complain(String(error)));
    page.on('console', (line) => { if (line.type() === 'error') complain(line.text()); });
    await page.addInitScript((what) => { window.order = what; }, {
      prometheus: order.prometheus, start: order.start, end: order.end, theme: order.theme, dashboard, width,
    });
    await page.goto(address);
    const panels = dashboard.panels.filter((panel) => panel.type !== 'row').length;
    await page.waitForFunction((count) => window.drawn === count, panels, { timeout: 120000 });
    await page.waitForTimeout(1500); // the last strokes
    const empty = await page.getByText('No data', { exact: true }).count();
    if (empty) complain(`${empty} panels without data`);
    const name = basename(file, '.json').replace('jobctl-', '');
    await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
    await page.close();
  }
} finally {
  await browser.close();
  server.close();
  rmSync(built, { recursive: true });
}
process.exit(wrong ? 1 : 0);
