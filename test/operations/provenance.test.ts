import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("the run an event comes from, on %s", (engine) => {
  let server: TestServer;
  let foreignKey: string;

  const emit = async (headers: Record<string, string> = {}, key?: string) => {
    const body = { event: "told", data: {} };
    const options = { headers, ...(key && { key }) };
    const answer = await server.rpc("SvcService", "Emit", body, options);
    expect(answer.status).toBe(200);
    return answer.body as { eventId: string; runIds?: string[] };
  };
  const runOf = async (eventId: string, key?: string) =>
    (await server.api(`/api/v1/events/${eventId}`, key ? { key } : {})).body.run_id;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { keys, tenancy } = server.running.domain;
    const theirs = await tenancy.createEnvironment({ orgId: "org_other", name: "theirs" });
    const scope = { orgId: "org_other", environmentId: theirs.id, name: "test", roleIds: ["role_developer"] };
    foreignKey = (await keys.create(scope)).key;
    await server.rpc("SvcService", "RegisterFunction", { id: "told", triggers: [{ event: "told" }] });
  });
  afterAll(() => server.stop());

  test("is kept when it is one of the environment, and left out when it is not", async () => {
    const first = await emit();
    expect(await runOf(first.eventId)).toBeUndefined();
    const runId = first.runIds![0]!;
    for (let time = 0; time < 2; time++)
      expect(await runOf((await emit({ "X-Svc-Run-ID": runId })).eventId)).toBe(runId);
    for (const unknown of ["run_none", "nonsense", "x".repeat(3_000)])
      expect(await runOf((await emit({ "X-Svc-Run-ID": unknown })).eventId)).toBeUndefined();
    const foreign = await emit({ "X-Svc-Run-ID": runId }, foreignKey);
    expect(await runOf(foreign.eventId, foreignKey)).toBeUndefined();
  });
});
