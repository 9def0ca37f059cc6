import { join } from "node:path";
import { type PanelSpec, rows } from "./panels.ts";

export const dashboardPath = join(import.meta.dir, "dashboard.json");

/** Of the 24 columns of Grafana. */
const panelWidth = 8;
const panelHeight = 8;
const source = { type: "prometheus", uid: "$datasource" };

const panelOf = ({ title, unit, lines }: PanelSpec, id: number, place: { x: number; y: number }) => ({
  ...{ id, title, type: "timeseries", datasource: source },
  gridPos: { ...place, w: panelWidth, h: panelHeight },
  fieldConfig: { defaults: { unit, min: 0, custom: { fillOpacity: 5, showPoints: "never" } }, overrides: [] },
  options: { legend: { displayMode: "list", placement: "bottom" }, tooltip: { mode: "multi", sort: "desc" } },
  targets: Object.entries(lines).map(([legendFormat, expr], at) => ({
    ...{ refId: String.fromCharCode("A".charCodeAt(0) + at), expr, legendFormat, datasource: source },
  })),
});

/** As Grafana 10 and newer import it. */
export function dashboardJson(): string {
  let id = 0;
  const panels = rows.flatMap(({ title, panels: specs }, row) => {
    const y = row * (panelHeight + 1);
    const heading = { id: ++id, title, type: "row", collapsed: false, gridPos: { x: 0, y, w: 24, h: 1 } };
    const shown = specs.map((spec, at) => panelOf(spec, ++id, { x: at * panelWidth, y: y + 1 }));
    return [heading, ...shown];
  });
  const variables = [
    { name: "datasource", type: "datasource", query: "prometheus" },
    {
      ...{ name: "job", type: "query", datasource: source, includeAll: true, multi: true, refresh: 2 },
      ...{ query: "label_values(svc_build_info, job)", current: { text: "All", value: "$__all" } },
    },
  ];
  const dashboard = {
    ...{ uid: "svc", title: "svc", schemaVersion: 39, version: 1, editable: true, refresh: "30s" },
    ...{ time: { from: "now-3h", to: "now" }, tags: ["svc"], templating: { list: variables }, panels },
  };
  return `${JSON.stringify(dashboard, null, 1)}\n`;
}
