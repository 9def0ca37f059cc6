import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { inChrome } from "../support/chrome.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { emit, functionWithWorker, sessionOf, stepOf, visit } from "./visit.ts";

describe.each(engines)("runs in the dashboard on %s", (engine) => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    session = await sessionOf(server, "developer");
  }, 300_000);
  afterAll(() => server.stop());

  test("a run is seen as it comes, moves and ends", async () => {
    const attributes = [{ name: "order", path: "order", type: "number" }];
    const worker = await functionWithWorker(server, "seen", "seen.asked", { attributes });
    await server.api("/api/v1/workers/worker-seen/register", {
      body: { function_ids: ["seen"], deployment: "build-7" },
    });
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, {
        ...{ path: "runs?function=seen", session },
        permissions: ["clipboard-read", "clipboard-write"],
      });
      await page.getByText("Live", { exact: true }).waitFor();
      const id = await emit(server, "seen.asked", { order: 17 });
      const row = page.locator(`[data-run="${id}"]`);
      await row.waitFor();
      const job = await worker.job();
      await row.getByText("Running").waitFor();
      await worker.report(job, {
        status: "completed",
        output: { paid: true },
        steps: [stepOf(job, "charge", { output: { receipt: "r-1" } })],
        logs: [{ level: "info", text: "the receipt is printed", step: "charge" }],
      });
      await row.getByText("Completed").waitFor();

      await row.getByRole("link").click();
      const ofOrder = await page.getByRole("link", { name: "order=17" }).getAttribute("href");
      expect(ofOrder).toContain("where=order%3D17");
      await page.getByRole("link", { name: /charge/ }).click();
      await page.getByRole("complementary").getByText("r-1").waitFor();
      await page.getByRole("link", { name: "Logs" }).click();
      await page.getByText("the receipt is printed").waitFor();
      await page.getByRole("link", { name: /Attempts/ }).click();
      await page.getByText("Attempt 1", { exact: true }).waitFor();
      await page.getByText("deployment build-7").waitFor();
      await page.getByRole("link", { name: /History/ }).click();
      await page.getByText("run.completed").waitFor();
      await page.getByRole("link", { name: "Causes and effects" }).click();
      await page.getByRole("link", { name: "seen.asked" }).first().waitFor();
      expect(new URL(page.url()).searchParams.get("tab")).toBe("causes");

      await page.keyboard.press("Control+k");
      await page.getByLabel(/^Search for a page/).fill(`${id}:charge:0`);
      await page.getByRole("option", { name: /Step$/ }).waitFor();
      await page.keyboard.press("Enter");
      await page.getByRole("complementary").getByText("r-1").waitFor();

      await page.getByRole("button", { name: "Copy as SDK test" }).click();
      await page.getByText("The test copied").waitFor();
      const copied = await page.evaluate(() => navigator.clipboard.readText());
      expect(copied).toContain('.mockStep("charge", {\n      "receipt": "r-1"\n    })');
      expect(copied).toContain('.run({\n      "order": 17\n    }, { name: "seen.asked" })');
      expect(copied).toContain('expect(result.output).toEqual({\n    "paid": true\n  })');
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a large value comes by how it begins, and whole to who asks for it", async () => {
    const worker = await functionWithWorker(server, "large", "large.asked");
    const note = "é".repeat(40_000);
    const { body: emitted } = await server.rpc("SvcService", "Emit", {
      event: "large.asked",
      data: { note },
    });
    const [id] = emitted.runIds;
    const job = await worker.job();
    const output = { text: "ü".repeat(2_000_000) };
    const steps = ["first", "second"].map((name) => stepOf(job, name, { output: { name, note } }));
    await worker.report(job, { status: "completed", output, steps });
    const ask = async (method: string, body: object, service = "SvcService") =>
      (await server.rpc(service, method, body)).body;
    const cutOf = (field: string, value: unknown) => {
      const text = JSON.stringify(value);
      // 9 characters of one byte, then 45 of two: the next one would end at the 101st byte.
      return { field, bytes: Buffer.byteLength(text), begins: text.slice(0, 54) };
    };
    const asked = { maxValueBytes: 100 };
    const cuts = [cutOf("input", { note }), cutOf("output", output)];
    const run = await ask("GetRun", { id, ...asked });
    expect([run.input, run.output, run.cutValues]).toEqual([undefined, undefined, cuts]);
    const listed = await ask("ListRuns", { functionId: "large", ...asked });
    expect(listed.runs.map((one: { cutValues: unknown }) => one.cutValues)).toEqual([cuts]);
    const whole = await ask("GetRun", { id });
    expect([whole.input, whole.output, whole.cutValues]).toEqual([{ note }, output, undefined]);
    const cutSteps = (await ask("GetRunSteps", { runId: id, ...asked })).steps;
    expect(cutSteps.map((one: { output: unknown }) => one.output)).toEqual([undefined, undefined]);
    expect(cutSteps[1].cutValues[0].bytes).toBe(Buffer.byteLength(JSON.stringify({ name: "second", note })));
    const { steps: single } = await ask("GetRunSteps", { runId: id, stepId: `${id}:second:0` });
    expect(single.map((one: { output: unknown }) => one.output)).toEqual([{ name: "second", note }]);
    const { snapshot } = await ask("GetRunStateAt", { runId: id, ...asked }, "TimeTravelService");
    expect([snapshot.input, snapshot.cutValues]).toEqual([undefined, [cuts[0]]]);
    expect(snapshot.steps[0]).not.toContainKey("output");
    const path = `/api/v1/events/${emitted.eventId}`;
    const event = (await server.api(`${path}?max_value_bytes=100`)).body;
    expect([event.data, event.cut_values]).toEqual([null, [{ ...cuts[0], field: "data" }]]);
    expect((await server.api(path)).body.data).toEqual({ note });
    for (const refused of [
      await server.rpc("SvcService", "GetRun", { id, maxValueBytes: -1 }),
      await server.api(`${path}?max_value_bytes=-1`),
    ]) {
      expect(refused.status).toBe(400);
      expect(JSON.stringify(refused.body)).toMatch(/max_?value_?bytes/i);
    }

    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: `runs/${id}`, session });
      await page.getByRole("button", { name: "Show all 3.8 MiB of the output" }).click();
      await page.getByRole("button", { name: "… 1,998,000 more characters" }).waitFor();
      await page.getByRole("link", { name: /second/ }).click();
      const panel = page.getByRole("complementary");
      await panel.getByRole("button", { name: /^Show all 78.2 KiB of the output/ }).click();
      await panel.getByRole("button", { name: "… 38,000 more characters" }).waitFor();
      await page.goto(`${server.url}/dashboard/org_default/${server.env}/events/${emitted.eventId}`);
      await page.getByRole("button", { name: /^Show all .* of the data/ }).click();
      await page.getByRole("button", { name: "… 38,000 more characters" }).waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a failed run is repaired: its step is patched and it goes on from there", async () => {
    const worker = await functionWithWorker(server, "mended", "mended.asked");
    await inChrome(async (browser) => {
      const id = await emit(server, "mended.asked");
      const job = await worker.job();
      const error = { message: "the card was declined", code: "DECLINED", retryable: false };
      const steps = [stepOf(job, "lookup", { output: { price: 1 } })];
      await worker.report(job, { status: "failed", error, steps });
      const { page } = await visit(browser, server, { path: `runs/${id}`, session });
      await page.getByText("the card was declined").waitFor();
      await page.getByRole("link", { name: /lookup/ }).click();
      await page.getByRole("button", { name: "Patch…" }).click();
      await page.getByLabel("Output (JSON)").fill("{ no json");
      await page.getByRole("button", { name: "Patch", exact: true }).click();
      await page.getByText("The output is not JSON").waitFor();
      await page.getByLabel("Output (JSON)").fill('{"price": 2}');
      await page.getByLabel("Reason").fill("the price list was old");
      await page.getByRole("button", { name: "Patch", exact: true }).click();
      await page.getByText("Original beside what replaced it").waitFor();
      const found = await server.rpc("SvcService", "GetRunSteps", { runId: id });
      expect(found.body.steps[0]).toMatchObject({ output: { price: 2 }, originalOutput: { price: 1 } });

      await page.getByRole("button", { name: "Resume…" }).click();
      await page.getByRole("button", { name: "Resume", exact: true }).click();
      const again = await worker.job();
      expect(again.completed_steps[0]).toMatchObject({ name: "lookup", output: { price: 2 } });
      await worker.complete(again);
      await page.getByRole("heading", { level: 1 }).getByText("Completed").waitFor();
      await page.context().close();
    });
  });

  test("the filter and the rows say by the same word why a run is paused", async () => {
    const until = new Date(Date.now() + 600_000).toISOString();
    const ids: string[] = [];
    for (const name of ["rests-one", "rests-two"]) {
      const worker = await functionWithWorker(server, name, `${name}.asked`);
      ids.push(await emit(server, `${name}.asked`));
      await worker.leave(await worker.job(), "nap", { type: "sleep", until });
    }
    const [held, asleep] = ids;
    await server.rpc("SvcService", "PauseRun", { runId: held });
    await inChrome(async (browser) => {
      const path = "runs?q=rests-&status=paused";
      const { page, complaints } = await visit(browser, server, { path, session });
      const row = (id: string | undefined) => page.locator(`[data-run="${id}"]`);
      const chip = (name: string) => page.getByRole("group").getByRole("button", { name, exact: true });
      await row(held).getByText("Held").waitFor();
      await row(asleep).getByText("Sleeping").waitFor();
      expect(await chip("Held").getAttribute("aria-pressed")).toBe("true");
      await chip("Sleeping").click();
      await row(asleep).waitFor({ state: "detached" });
      await row(held).getByText("Held").waitFor();
      await chip("Sleeping").click();
      await chip("Held").click();
      await row(held).waitFor({ state: "detached" });
      await row(asleep).getByText("Sleeping").waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });
});
