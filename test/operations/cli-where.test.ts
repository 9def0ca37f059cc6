import { afterAll, beforeAll, expect, test } from "bun:test";
import { type Cli, makeCli } from "../support/cli.ts";
import { runOnce } from "../support/one-run.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
let cli: Cli;
beforeAll(async () => {
  server = await startTestServer({ engine: "libsql" });
  cli = makeCli({ SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey });
}, 60_000);
afterAll(async () => {
  cli?.remove();
  await server?.stop();
});

test("runs are found by their attributes, each read as its name's type, and one that has some is shown whole", async () => {
  await server.rpc("SvcService", "RegisterFunction", {
    ...{ id: "ordered", triggers: [{ event: "order.made" }] },
    attributes: [
      { name: "orderId", path: "orderId" },
      { name: "total", path: "total", type: "number" },
    ],
  });
  const made: string[] = [];
  for (const data of [
    { orderId: "22", total: 7 },
    { orderId: "L23", total: 120 },
  ])
    made.push((await server.rpc("SvcService", "Emit", { event: "order.made", data })).body.runIds[0]);
  const found = async (...conditions: string[]) => {
    const { out } = await cli.run(["runs", "--jsonl", ...conditions.flatMap((one) => ["--where", one])]);
    return out.split("\n").flatMap((line) => (line === "" ? [] : (JSON.parse(line).id as string)));
  };
  expect(await found("orderId=22")).toEqual([made[0]!]);
  expect(await found("total>=100")).toEqual([made[1]!]);
  expect(await found("total<100", "orderId=22")).toEqual([made[0]!]);
  expect(await found("total<100", "orderId=L23")).toEqual([]);
  for (const wrong of ["orderId", "total=many"]) {
    const { code, err } = await cli.run(["runs", "--where", wrong]);
    expect([wrong, code]).toEqual([wrong, 2]);
    expect(err).toContain("--where");
  }
  const { out } = await cli.run(["run", made[1]!]);
  for (const line of [/^status +waiting_for_capacity/m, /^functionId +ordered/m, /orderId/])
    expect(out).toMatch(line);
});

test("why names the step to begin again at: by its id where others have its name, and as plain text", async () => {
  const step = (id: string, name: string, status: string) => ({
    ...{ id, name, type: "invoke", status },
    ...(status === "failed" ? { error: { message: "declined" } } : { output: 1 }),
  });
  const whyOf = async (name: string, steps: object[]) => {
    const report = { status: "failed", error: { message: "declined", retryable: false }, steps };
    const { runId, answer } = await runOnce(server, name, report);
    expect(answer.body).toEqual({ status: "ok" });
    return (await cli.run(["why", runId])).out;
  };
  const twice = [step("a:charge:0", "charge", "completed"), step("a:charge:1", "charge", "failed")];
  expect(await whyOf("twice", twice)).toContain("--from-step a:charge:1\n");
  expect(await whyOf("once", [step("a:charge:0", "charge", "failed")])).toContain("--from-step charge\n");
  const rude = await whyOf("rude", [step("a:rude:0", "it's \u001b[2J rude", "failed")]);
  expect(rude).toContain("--from-step 'it'\\''s ");
  expect(rude).not.toContain("\u001b[2J");
});
