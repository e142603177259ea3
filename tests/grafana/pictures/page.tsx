// One dashboard, drawn by Grafana's own components from a Prometheus. There is no Grafana server in
// between: what Grafana's front end does with a panel's JSON is done here, for the two kinds of
// panels that our dashboards have. `window.order` says what to draw; `window.drawn` counts panels.
import 'uplot/dist/uPlot.min.css';
import React, { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import {
  applyFieldOverrides, createTheme, DataFrame, dateTime, FieldConfigOptionsRegistry, FieldType,
  getFieldDisplayValues, identityOverrideProcessor, toDataFrame,
} from '@grafana/data';
import { BigValue, BigValueTextMode, GlobalStyles, PanelChrome, ThemeContext, TimeSeries } from '@grafana/ui';

interface Order { prometheus: string; dashboard: any; start: number; end: number; theme: 'dark' | 'light'; width: number }
const order: Order = (window as any).order;
const theme = createTheme({ colors: { mode: order.theme } });
const step = Math.max(1, Math.round((order.end - order.start) / 240));
const window_ = Math.max(20, 4 * step);
const range: any = {
  from: dateTime(order.start * 1000), to: dateTime(order.end * 1000),
  raw: { from: dateTime(order.start * 1000), to: dateTime(order.end * 1000) },
};
const same = (value: any) => value;

const properties = ['unit', 'decimals', 'min', 'max', 'displayName', 'noValue', 'thresholds', 'mappings', 'color'];
const registry = new FieldConfigOptionsRegistry(() => properties.map((id) => ({
  id, path: id, name: id, isCustom: false, process: identityOverrideProcessor,
  shouldApply: () => true, override: () => null, editor: () => null, settings: {},
} as any)));

function asked(expr: string): string {
  return expr.replaceAll('$__rate_interval', `${window_}s`).replace(/\$\w+/g, '.+');
}

function legend(format: string, labels: Record<string, string>): string {
  if (format === '__auto') return Object.values(labels).join(' ') || 'value';
  return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');
}

async function frames(panel: any): Promise<DataFrame[]> {
  const found: DataFrame[] = [];
  for (const target of panel.targets) {
    const words = new URLSearchParams({
      query: asked(target.expr), start: `${order.start}`, end: `${order.end}`, step: `${step}`,
    });
    const answer = await (await fetch(`${order.prometheus}/api/v1/query_range?${words}`)).json();
    if (answer.status !== 'success') throw new Error(`${panel.title}: ${answer.error}`);
    // On one grid, so that graphs can be stacked and a gap is a gap.
    const times: number[] = [];
    for (let time = order.start; time <= order.end; time += step) times.push(time);
    for (const series of answer.data.result) {
      const values = new Map<number, number>(
        series.values.map(([time, value]: [number, string]) => [Math.round(time), Number(value)]),
      );
      const config = { displayNameFromDS: legend(target.legendFormat, series.metric) };
      found.push(toDataFrame({
        refId: target.refId,
        fields: [
          { name: 'Time', type: FieldType.time, values: times.map((time) => time * 1000) },
          {
            name: 'Value', type: FieldType.number, labels: series.metric, config,
            values: times.map((time) => {
              const value = values.get(Math.round(time));
              return value === undefined || Number.isNaN(value) ? null : value;
            }),
          },
        ],
      }));
    }
  }
  const fitted = applyFieldOverrides({
    data: found, fieldConfig: panel.fieldConfig, replaceVariables: same, theme, timeZone: 'utc',
    fieldConfigRegistry: registry,
  } as any);
  for (const frame of fitted) {
    for (const field of frame.fields) {
      if (field.name !== 'Time') field.config.custom = { ...panel.fieldConfig.defaults.custom, ...(field.config.custom ?? {}) };
    }
  }
  return fitted;
}

function Figures({ panel, data, width, height }: any) {
  const values = getFieldDisplayValues({
    fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, theme, data,
    replaceVariables: same, sparkline: true, timeZone: 'utc',
  } as any);
  return (
    <div style={{ display: 'flex' }}>
      {values.map((value: any, index: number) => (
        <BigValue
          key={index} value={value.display} sparkline={value.sparkline}
          colorMode={panel.options.colorMode} graphMode={panel.options.graphMode}
          justifyMode={panel.options.justifyMode} width={width / values.length} height={height} theme={theme}
          textMode={BigValueTextMode.Value}
        />
      ))}
    </div>
  );
}

function Graph({ panel, data, width, height }: any) {
  const Lines: any = TimeSeries;
  return (
    <Lines
      frames={data} timeRange={range} timeZone="utc" width={width} height={height}
      legend={panel.options.legend} options={panel.options}
    />
  );
}

function Panel({ panel, width, height }: any) {
  const [data, set] = useState<DataFrame[] | null>(null);
  useEffect(() => {
    frames(panel).then(set, (error) => { console.error(String(error)); set([]); });
  }, []);
  useEffect(() => {
    if (data !== null) (window as any).drawn = ((window as any).drawn ?? 0) + 1;
  }, [data]);
  const Frame: any = PanelChrome;
  const Inside: any = panel.type === 'stat' ? Figures : Graph;
  return (
    <Frame title={panel.title} width={width} height={height}>
      {(inner: number, below: number) =>
        data === null ? null : data.length === 0 ? <div>No data</div>
          : <Inside panel={panel} data={data} width={inner} height={below} />}
    </Frame>
  );
}

function Page() {
  const column = order.width / 24;
  const row = 34;
  const panels: any[] = order.dashboard.panels;
  const height = Math.max(...panels.map((panel) => panel.gridPos.y + panel.gridPos.h)) * row;
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles isExtensionSidebarOpen={false} />
      <div style={{ background: theme.colors.background.canvas, color: theme.colors.text.primary, padding: 12, fontFamily: 'Inter, Helvetica, Arial, sans-serif', fontSize: 13 }}>
        <h4>{order.dashboard.title}</h4>
        <div style={{ position: 'relative', width: order.width, height }}>
          {panels.map((panel) => {
            const { x, y, w, h } = panel.gridPos;
            return (
              <div key={panel.id} style={{ position: 'absolute', left: x * column, top: y * row }}>
                {panel.type === 'row'
                  ? <div style={{ paddingTop: 8, fontWeight: 500 }}>{panel.title}</div>
                  : <Panel panel={panel} width={w * column - 8} height={h * row - 8} />}
              </div>
            );
          })}
        </div>
      </div>
    </ThemeContext.Provider>
  );
}

createRoot(document.getElementById('root')!).render(<Page />);
