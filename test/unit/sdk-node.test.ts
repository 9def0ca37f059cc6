import { afterEach, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "../../src/sdk/index.ts";
import { startFakeServer } from "../support/fake-server.ts";
import { until } from "../support/until.ts";

const program = `
import { createFunction, createWorker } from "./index.js";
const greet = createFunction({ id: "greet", event: "hello" }, async ({ event, step }) => {
  const name = await step.run("name", () => event.data.name);
  await step.sleep("think", "20ms");
  return step.run("greeting", () => "hello " + name);
});
await createWorker({ functions: [greet] }).start();
console.log("ready");
`;

const folders: string[] = [];
afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true, force: true });
});

test("built for Node, a worker runs there, durable steps and all, and leaves on SIGTERM", async () => {
  const node = Bun.which("node");
  if (node === null) throw new Error("node was not found. Install it: apt-get install nodejs");
  const folder = await mkdtemp(join(tmpdir(), "svc-sdk-"));
  folders.push(folder);
  const built = await Bun.build({ entrypoints: ["src/sdk/index.ts"], target: "node", outdir: folder });
  expect(built.success).toBe(true);
  expect(await built.outputs[0]!.text()).not.toMatch(/\bBun\.|\brequire\(/);
  await Bun.write(join(folder, "worker.mjs"), program);

  const server = startFakeServer();
  const child = Bun.spawn([node, join(folder, "worker.mjs")], {
    env: { PATH: process.env.PATH, SVC_SERVER_URL: server.url },
    stdout: "pipe",
    stderr: "inherit",
  });
  try {
    await until(() => server.functions.has("greet"), { about: "the worker to register" });
    const { runIds } = await createClient({ url: server.url }).emit("hello", { name: "you" });
    const run = await until(
      () => server.runs.get(runIds[0]!)?.status === "completed" && server.runs.get(runIds[0]!),
      { about: "the run to complete" },
    );
    expect(run.output).toBe("hello you");
    child.kill("SIGTERM");
    await child.exited;
    expect(child.signalCode).toBe("SIGTERM");
  } finally {
    child.kill("SIGKILL");
    await child.exited;
    await server.stop();
  }
});
