import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { YAML } from "bun";
import { dashboardJson, dashboardPath } from "../../cluster/observability/dashboard.ts";
import { rows } from "../../cluster/observability/panels.ts";
import { findPromtool } from "../support/promtool.ts";

const root = join(import.meta.dir, "../..");
const alertsPath = join(root, "cluster/observability/alerts.yaml");

interface AlertRule {
  alert: string;
  expr: string;
  labels: { severity: string };
  annotations: { summary: string; description: string };
}

const { groups } = YAML.parse(await Bun.file(alertsPath).text()) as { groups: { rules: AlertRule[] }[] };
const alerts = groups.flatMap(({ rules }) => rules);
const panels = rows.flatMap((row) => row.panels);

/** Kind and labels of every metric that the reference lists. */
const metrics = new Map(
  [
    ...(await Bun.file(join(root, "src/REFERENCE.md")).text()).matchAll(
      /^\| `(svc_\w+)` \| (\w+) \| (.*?) \|/gm,
    ),
  ].map(([, name, kind, labels]) => [
    name!,
    { kind: kind!, labels: [...labels!.matchAll(/`(\w+)`/g)].map(([, label]) => label!) },
  ]),
);
/** What Prometheus adds, and Grafana's place for a label. */
const everywhere = ["instance", "job", "le"];

/** What an expression asks for that no node tells. */
function unknownIn(expr: string): string[] {
  const told = (name: string) => {
    const exact = metrics.get(name);
    if (exact) return exact.kind === "histogram" ? undefined : exact;
    const base = metrics.get(name.replace(/_(bucket|sum|count)$/, ""));
    return base?.kind === "histogram" ? base : undefined;
  };
  const named = [...expr.matchAll(/svc_\w+/g)].map(([name]) => name);
  const labels = new Set([...everywhere, ...named.flatMap((name) => told(name)?.labels ?? [])]);
  const asked = [
    ...[...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list]) => list!.split(/,\s*/)),
    ...[...expr.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label]) => label!),
  ].filter((label) => label !== "");
  return [...named.filter((name) => !told(name)), ...asked.filter((label) => !labels.has(label))];
}

describe("what comes for Prometheus and Grafana", () => {
  test("a metric or label that is not there is found", () => {
    expect(unknownIn('sum by (flush) (rate(svc_flush_items_bucket{job="a"}[5m]))')).toEqual([]);
    expect(unknownIn('rate(svc_runs_total{state="failed"}[5m]) + svc_gone')).toEqual(["svc_gone", "state"]);
    expect(unknownIn("svc_flush_items")).toEqual(["svc_flush_items"]);
  });

  test("asks for metrics and labels that nodes tell", () => {
    for (const { alert, expr } of alerts) expect([alert, ...unknownIn(expr)]).toEqual([alert]);
    for (const { title, lines } of panels)
      for (const [legend, expr] of Object.entries(lines)) {
        expect([title, ...unknownIn(expr)]).toEqual([title]);
        for (const [, label] of legend.matchAll(/\{\{(\w+)\}\}/g)) expect(expr).toContain(label!);
      }
  });

  test("every alert says how grave it is, what is the matter and what to do", () => {
    expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length);
    for (const { labels, annotations } of alerts) {
      expect(["page", "ticket"]).toContain(labels.severity);
      expect(annotations.summary.length * annotations.description.length).toBeGreaterThan(0);
    }
  });

  test("the dashboard is written from its panels", async () => {
    expect(await Bun.file(dashboardPath).text()).toBe(dashboardJson());
  });

  test("promtool accepts the rules and every expression", async () => {
    const promtool = findPromtool();
    const check = Bun.spawn([promtool, "check", "rules", alertsPath], { stdout: "pipe", stderr: "pipe" });
    const said = await new Response(check.stdout).text();
    expect([await check.exited, said]).toEqual([0, expect.stringContaining(`${alerts.length} rules found`)]);
    const rules = panels.flatMap(({ lines }, at) =>
      Object.values(lines).map((expr, line) => ({
        record: `panel:${at}:${line}`,
        expr: expr.replaceAll("$__rate_interval", "5m").replaceAll("$job", ".*"),
      })),
    );
    const file = JSON.stringify({ groups: [{ name: "panels", rules }] });
    const shown = Bun.spawn([promtool, "check", "rules", "--lint=none", "/dev/stdin"], {
      stdin: new Blob([file]),
      stdout: "pipe",
      stderr: "pipe",
    });
    const errors = await new Response(shown.stderr).text();
    expect([await shown.exited, errors]).toEqual([0, ""]);
  });
});
