import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { openCollector, valuesOf } from "../support/collector.ts";
import { livedTime } from "../support/lived.ts";
import { loggedLines } from "../support/logged.ts";
import { runOnce } from "../support/one-run.ts";
import { startTestServer } from "../support/server.ts";

describe("traces", () => {
  const collector = openCollector();
  const { endpoint: otelEndpoint, spans: spansOf } = collector;
  const start = (settings = {}, log = loggedLines().log) =>
    startTestServer({ engine: "libsql", log, settings: { otelEndpoint, pollHoldMs: 0, ...settings } });

  beforeEach(collector.forget);
  afterAll(() => collector.stop());

  test("of requests, flushes and claims arrive by the end of the shutdown, and carry no payload", async () => {
    const server = await start({ nodeId: "n1" });
    await runOnce(server, "traced-secretive");
    await server.rpc("SvcService", "Emit", { event: "traced-secretive.asked", data: { word: "hush" } });
    await server.api("/api/v1/workers/worker-of-traced-secretive/jobs?available=1");
    await server.api("/nowhere/hidden?query=hush");
    await server.stop();

    expect(new Set(collector.sent.map(({ path }) => path))).toEqual(new Set(["/v1/traces"]));
    expect(collector.sent[0]?.resource).toMatchObject({ "service.name": "svc", "service.instance.id": "n1" });
    const spans = spansOf();
    const named = (name: string) => spans.filter((span) => span.name === name);
    const [report] = named("PUT /api/v1/workers/{workerId}/jobs/{jobId}");
    expect(report?.kind).toBe(2);
    expect(valuesOf(report!.attributes)).toEqual({
      "http.request.method": "PUT",
      "http.route": "/api/v1/workers/{workerId}/jobs/{jobId}",
      "http.response.status_code": 200,
      "svc.operation": "workers.report",
      "svc.environment_id": server.env,
    });
    expect(named("* *")).toHaveLength(1);
    expect(valuesOf(named("flush events.emit")[0]!.attributes)).toEqual({ "svc.flush.items": 1 });
    expect(named("flush runs.settle")).toHaveLength(1);
    expect(valuesOf(named("claim")[0]!.attributes)).toMatchObject({ "svc.claim.lanes": 1 });
    for (const word of ["secretive", "hush", "hidden", "ifkey_", "worker-of", "asked"])
      expect(collector.raw).not.toContain(word);
  });

  test("go on with a caller's trace, by its decision; a malformed one begins anew", async () => {
    const server = await start({ otelSampleRate: 0, otelServiceName: "shop-svc" });
    const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
    const path = "/api/v1/environments";
    const ask = (traceparent: string) => server.api(path, { headers: { traceparent } });
    await ask(`00-${traceId}-00f067aa0ba902b7-01`);
    // Where anybody may ask, the flag is a stranger's.
    await server.api("/health", { headers: { traceparent: `00-${traceId}-00f067aa0ba902b7-01` } });
    await ask(`00-${traceId}-00f067aa0ba902b8-00`);
    for (const malformed of [
      "",
      "00-abc-def-01",
      `00-${"0".repeat(32)}-00f067aa0ba902b7-01`,
      `ff-${traceId}-00f067aa0ba902b7-01`,
    ])
      await ask(malformed);
    await server.api(path);
    await server.stop();
    expect(spansOf().map((span) => [span.name, span.traceId, span.parentSpanId])).toEqual([
      [`GET ${path}`, traceId, "00f067aa0ba902b7"],
    ]);
    expect(collector.sent[0]?.resource["service.name"]).toBe("shop-svc");
  });

  test("that nobody samples are none; half of them are about half", async () => {
    const none = await start({ otelSampleRate: 0 });
    await runOnce(none, "untraced");
    await none.stop();
    expect(collector.sent).toEqual([]);
    const half = await start({ otelSampleRate: 0.5 });
    for (let n = 0; n < 200; n++) await half.api("/health");
    await half.stop();
    const count = spansOf().length;
    expect(count).toBeGreaterThan(50);
    expect(count).toBeLessThan(150);
  });

  test("do not hold the shutdown when the collector is stuck, and say so once when it refuses", async () => {
    collector.answer = () => new Promise(() => {});
    const stuck = await start();
    await stuck.api("/health");
    const lived = await livedTime();
    await stuck.stop();
    expect(lived.now()).toBeLessThan(5_000);
    await lived.stop();

    collector.answer = () => new Response("no", { status: 400 });
    const { log, lines } = loggedLines();
    const refused = await start({}, log);
    await refused.api("/health");
    await refused.stop();
    expect(lines.filter(({ event }) => event === "traces.lost")).toHaveLength(1);
  });
});
