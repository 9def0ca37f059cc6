import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Cli, makeCli } from "../support/cli.ts";
import { freePort } from "../support/process.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const root = resolve(import.meta.dir, "../..");
const mainFile = join(root, "src/main.ts");

/** Also those of a test that failed half way are ended. */
const started = new Set<Bun.Subprocess>();

/** A process that a person would start, and what it has said. */
function start(command: string[], { cwd = root, variables = {} as Record<string, string> } = {}) {
  const child = Bun.spawn(command, {
    cwd,
    env: { PATH: process.env.PATH, TERM: "xterm", ...variables },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe",
  });
  started.add(child);
  const said = { out: "", err: "" };
  const collect = async (stream: ReadableStream<Uint8Array>, into: keyof typeof said) => {
    const decoder = new TextDecoder();
    for await (const bytes of stream) said[into] += decoder.decode(bytes, { stream: true });
  };
  const both = Promise.all([collect(child.stdout, "out"), collect(child.stderr, "err")]);
  return {
    child,
    said,
    async end(signal?: NodeJS.Signals) {
      if (signal) child.kill(signal);
      const code = await child.exited;
      await both;
      started.delete(child);
      return { code, ...said };
    },
  };
}

const svc = (words: string[], options: Parameters<typeof start>[1] = {}) =>
  start([process.execPath, mainFile, ...words], options);

describe("svc as a process", () => {
  let server: TestServer;
  let home: Cli;
  let variables: Record<string, string>;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
    home = makeCli();
    variables = { SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey, HOME: home.folder };
    await server.rpc("SvcService", "RegisterFunction", { id: "shown" });
  }, 120_000);
  afterAll(async () => {
    for (const child of started) child.kill("SIGKILL");
    home?.remove();
    await server?.stop();
  });

  test("piped: plain text; on a terminal: colours and a question; with a closed end: no complaint", async () => {
    const piped = await svc(["function", "list"], { variables }).end();
    expect(piped).toMatchObject({
      code: 0,
      err: "",
      out: expect.stringMatching(/^ID +STATUS.*\nshown +active/),
    });
    const line = `${process.execPath} ${mainFile}`;
    const terminal = start(["script", "-qec", `${line} function delete shown`, "/dev/null"], { variables });
    await until(() => terminal.said.out.includes("[y/N]"), { about: "the question", deadlineMs: 20_000 });
    terminal.child.stdin.write("n\r");
    await terminal.child.stdin.flush();
    expect(await terminal.end()).toMatchObject({ code: 1, out: expect.stringContaining("nothing was done") });
    const coloured = await start(["script", "-qec", `${line} function list`, "/dev/null"], {
      variables,
    }).end();
    expect(coloured.out).toContain("\u001b[32mactive");
    const cut = await start(["sh", "-c", `${line} call server.openapi --json | head -c 10`], {
      variables,
    }).end();
    expect(cut).toMatchObject({ code: 0, err: "" });
  }, 120_000);

  test("without a word: the commands, and no server; bash completes them", async () => {
    const bare = await svc([], { cwd: home.folder }).end();
    expect(bare).toMatchObject({ code: 0, err: "", out: expect.stringContaining("Groups of commands:") });
    expect(existsSync(join(home.folder, ".svc"))).toBe(false);
    const script = `svc() { ${process.execPath} ${mainFile} "$@"; }
      source <(svc completion bash)
      COMP_WORDS=(svc run pau)
      COMP_CWORD=2
      _svc
      echo "\${COMPREPLY[@]}"`;
    const completed = await start(["bash", "-c", script], { variables }).end();
    expect(completed).toMatchObject({ code: 0, err: "", out: "pause paused-state\n" });
  }, 120_000);

  test("serve -f makes the organizations of its file", async () => {
    const file = join(home.folder, "svc.yaml");
    const port = await freePort();
    const organizations =
      "[{ name: Acme, projects: [{ name: Shop, environments: [{ name: live }, { name: test }] }] }]";
    writeFileSync(
      file,
      `apiVersion: svc/v1
kind: Platform
spec:
  port: ${port}
  storage: { path: "${join(home.folder, "filed.db")}" }
  auth: { devMode: true }
  settings: { grpcPort: 0 }
  platform: { organizations: ${organizations} }
`,
    );
    const url = `http://127.0.0.1:${port}`;
    const serving = svc(["serve", "-f", file], { variables: { SVC_PORT: "1" } });
    await until(() => serving.said.err.includes(url), { about: "the banner", deadlineMs: 20_000 });
    expect(serving.said.err).toContain("SVC_PORT is ignored");
    expect(await (await fetch(`${url}/api/v1/tenants`)).text()).toContain('"Acme"');
    expect((await serving.end("SIGTERM")).code).toBe(0);
    expect((await svc(["serve", "-f", join(home.folder, "none.yaml")]).end()).code).toBe(2);
  }, 120_000);

  test("init and dev: types and test of the project pass, a run completes without its sleep, a change restarts the worker", async () => {
    const folder = join(home.folder, "shop");
    expect((await svc(["init", "shop"], { cwd: home.folder }).end()).code).toBe(0);
    mkdirSync(join(folder, "node_modules"));
    symlinkSync(root, join(folder, "node_modules/svc"));
    symlinkSync(join(root, "node_modules/@types"), join(folder, "node_modules/@types"));
    const typed = await start([join(root, "node_modules/.bin/tsc"), "-p", folder]).end();
    expect(typed).toMatchObject({ code: 0, out: "" });
    const tested = await start([process.execPath, "test"], { cwd: folder }).end();
    expect([tested.code, tested.err]).toEqual([0, expect.stringContaining("1 pass")]);

    const words = ["dev", "--fresh", "--port", "0", "--worker", "src/worker.ts", "--skip-time", "--open"];
    // In the place of a browser.
    const opened = join(home.folder, "opened");
    const browser = join(home.folder, process.platform === "darwin" ? "open" : "xdg-open");
    writeFileSync(browser, `#!/bin/sh\necho "$1" > ${opened}\n`, { mode: 0o755 });
    const dev = svc(words, {
      cwd: folder,
      variables: { SVC_GRPC_PORT: "0", HOME: home.folder, PATH: `${home.folder}:${process.env.PATH}` },
    });
    const url = await until(() => /svc dev on (\S+),/.exec(dev.said.out)?.[1], {
      about: "dev",
      deadlineMs: 20_000,
    });
    const greet = join(folder, "src/greet.ts");
    const emit = async () => {
      const said = ["emit", "user.joined", "--data", '{"name":"Ada"}', "--wait", "--json", "--server", url];
      const { out } = await svc(said).end();
      return JSON.parse(out).results[0];
    };
    await until(async () => (await (await fetch(`${url}/api/v1/workers`)).json()).count === 1, {
      about: "the worker",
      deadlineMs: 20_000,
    });
    writeFileSync(greet, readFileSync(greet, "utf8").replace('"2s"', '"7d"'));
    await until(() => dev.said.err.includes("the worker starts again"), {
      about: "the reload",
      deadlineMs: 20_000,
    });
    await until(
      async () => {
        const { workers } = await (await fetch(`${url}/api/v1/workers`)).json();
        return workers.length >= 1;
      },
      { about: "the worker again", deadlineMs: 20_000 },
    );
    expect(dev.said.out).toContain(`dashboard  ${url}/dashboard`);
    expect(readFileSync(opened, "utf8")).toBe(`${url}/dashboard\n`);
    const misspelt = await svc(["emit", "user.joind", "--server", url]).end();
    expect(misspelt.code).toBe(0);
    await until(() => dev.said.err.includes("user.joind started no run: svc function list"), {
      about: "the event that no function listens to",
      deadlineMs: 20_000,
    });
    expect(await emit()).toMatchObject({ status: "RUN_STATUS_COMPLETED", output: { sent: "Hello Ada" } });
    await until(() => /greet {2}completed/.test(dev.said.out), {
      about: "the line of the run",
      deadlineMs: 20_000,
    });
    const ended = await dev.end("SIGINT");
    // The worker took its own place: no other one serves the function.
    expect(ended.err).not.toContain("another connected worker");
    expect(ended.err.match(/started no run/g)).toHaveLength(1);
    expect([ended.code, ended.out]).toEqual([0, expect.stringContaining("step write")]);
    expect(ended.out.search(/greet {2}completed/)).toBeGreaterThan(ended.out.lastIndexOf("  step "));
  }, 90_000);
});
