import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("triggers with patterns on %s", (engine) => {
  let server: TestServer;
  const rpc = async (method: string, body: object) => {
    const answer = await server.rpc("SvcService", method, body);
    expect({ method, status: answer.status, body: answer.body }).toMatchObject({ status: 200 });
    return answer.body;
  };
  const register = (id: string, ...triggers: object[]) => rpc("RegisterFunction", { id, triggers });
  const startedBy = async (event: string, data: object = {}): Promise<string[]> => {
    const { runIds = [] } = await rpc("Emit", { event, data });
    const runs = await Promise.all(runIds.map((id: string) => rpc("GetRun", { id })));
    return runs.map(({ functionId }) => functionId);
  };

  beforeAll(async () => {
    server = await startTestServer({ engine });
    await register("one", { event: "order.placed" });
    await register("segment", { event: "order.*" });
    await register("rest", { event: "order.>" });
    await register("large", { event: "order.*", expression: "event.name == 'order.paid' && data.total > 5" });
  });
  afterAll(() => server.stop());

  test("an event starts what is for its name, and what a pattern stands for", async () => {
    expect(await startedBy("order.placed")).toEqual(["one", "rest", "segment"]);
    expect(await startedBy("order.placed.late")).toEqual(["rest"]);
    expect(await startedBy("order")).toEqual([]);
    expect(await startedBy("order.paid", { total: 5 })).toEqual(["rest", "segment"]);
    expect(await startedBy("order.paid", { total: 6 })).toEqual(["large", "rest", "segment"]);
  });

  test("a pattern comes with the next emit, changes and goes", async () => {
    await register("moving", { event: "cart.*" });
    expect(await startedBy("cart.filled")).toEqual(["moving"]);
    await register("moving", { event: "basket.*" });
    expect(await startedBy("cart.filled")).toEqual([]);
    expect(await startedBy("basket.filled")).toEqual(["moving"]);
    await rpc("DeleteFunction", { id: "moving" });
    expect(await startedBy("basket.filled")).toEqual([]);
  });

  test("an invoke by a function's name goes first to that one, whoever listens to all", async () => {
    await register("listener", { event: "called.>" });
    await register("called.directly");
    expect(await startedBy("called.directly")).toEqual(["called.directly", "listener"]);
    await register("named", { event: "called.indirectly" });
    await register("called.indirectly");
    expect(await startedBy("called.indirectly")).toEqual(["named", "listener"]);
  });

  test("a function that says which events of its own name it takes starts for no other", async () => {
    await register("picky.asked", { event: "picky.asked", expression: "data.total > 5" });
    expect(await startedBy("picky.asked", { total: 5 })).toEqual([]);
    expect(await startedBy("picky.asked")).toEqual([]);
    expect(await startedBy("picky.asked", { total: 6 })).toEqual(["picky.asked"]);
    await register("picky.asked", { event: "another.asked", expression: "data.total > 5" });
    expect(await startedBy("picky.asked")).toEqual(["picky.asked"]);
  });

  test("a function with a pattern has event triggers: and no run may invoke it", async () => {
    await register("parent", { event: "parent.asked" });
    const worker = pullWorker(server, "w");
    await worker.register("parent");
    const { runIds } = await rpc("Emit", { event: "parent.asked" });
    const [job] = await worker.poll();
    await worker.leave(job!, "call", { type: "invoke_function", function_id: "segment", input: {} });
    const failed = await until(
      async () => {
        await server.running.tick("runs.children");
        const run = await rpc("GetRun", { id: runIds[0] });
        if (run.status === "RUN_STATUS_FAILED") return run.error;
        const [again] = await worker.poll();
        return again?.completed_steps[0]?.error;
      },
      { about: "the refusal" },
    );
    expect(JSON.stringify(failed)).toContain("has event triggers");
  });

  test("what is no pattern is refused with its field", async () => {
    for (const event of ["order.**", "order.>.x", "ord*", "order. *", "a..*"]) {
      const { status, body } = await server.rpc("SvcService", "RegisterFunction", {
        id: "refused",
        triggers: [{ event }],
      });
      expect({ event, status, message: body.message }).toMatchObject({
        status: 400,
        message: expect.stringContaining("triggers[0].event"),
      });
    }
  });

  test("empty words of a cron trigger are absent", async () => {
    await register("nightly", { event: "", expression: "", cron: "0 3 * * *" });
    expect((await rpc("GetFunction", { id: "nightly" })).triggers).toEqual([{ cron: "0 3 * * *" }]);
  });
});
