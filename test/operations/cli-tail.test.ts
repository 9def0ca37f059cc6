import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join, resolve } from "node:path";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const mainFile = resolve(import.meta.dir, "../../src/main.ts");

describe.each(engines)("svc tail, as a person starts it, on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const emit = async (event: string, data: unknown, metadata?: object) =>
    Number(
      (await server.rpc("SvcService", "Emit", { event, data, ...(metadata && { metadata }) })).body.sequence,
    );

  function tail(words: string[], variables: Record<string, string> = {}) {
    const child = Bun.spawn([process.execPath, mainFile, "tail", ...words], {
      env: { PATH: process.env.PATH, SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey, ...variables },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
    const said = { out: "", error: "" };
    const collect = async (stream: ReadableStream<Uint8Array>, into: keyof typeof said) => {
      const decoder = new TextDecoder();
      for await (const bytes of stream) said[into] += decoder.decode(bytes, { stream: true });
    };
    const both = Promise.all([collect(child.stdout, "out"), collect(child.stderr, "error")]);
    return {
      child,
      lines: () => said.out.split("\n").slice(0, -1),
      /** Its exit code, and all that it said. */
      async end(signal?: NodeJS.Signals) {
        if (signal) child.kill(signal);
        const code = await child.exited;
        await both;
        return { code, ...said };
      },
    };
  }

  test("lines of JSON: the past, what follows, and the end that was asked for", async () => {
    await emit("told.a", { n: 1 });
    const second = await emit("told.b", { n: 2 }, { tenant: "t" });
    const going = tail(["told.>", "--replay", "1", "--json", "--count", "3", "--filter=data.n != 3"]);
    await until(() => going.lines().length === 1, { about: "the replay" });
    await emit("told.a", { n: 3 });
    await emit("told.a", { n: 4 });
    await emit("told.a", { n: 5 });
    const { code, out, error } = await going.end();
    expect([code, error]).toEqual([0, ""]);
    const [first, ...rest] = out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(first).toEqual({
      topic: "events:told.b",
      sequence: second,
      eventId: expect.stringMatching(/^evt_/),
      timestamp: expect.any(String),
      metadata: { tenant: "t" },
      data: { n: 2 },
    });
    expect(rest.map(({ data }) => data.n)).toEqual([4, 5]);
  }, 120_000);

  test("for people; several patterns; a key file; ^C is no failure", async () => {
    await emit("shown.a", { n: 1 }, { by: "ada" });
    const before = (await emit("shown.b", [2])) - 2;
    const going = tail(["--key-file", server.home.keyFile, "shown.a", "shown.b", "--after", `${before}`], {
      SVC_API_KEY: "",
    });
    await until(() => going.lines().length === 2, { about: "both" });
    const lines = going.lines().sort((a, b) => a.localeCompare(b.slice(0)));
    const one = (topic: string) => lines.find((line) => line.includes(topic));
    expect(one("shown.a")).toMatch(
      /^\d\d:\d\d:\d\d\.\d{3} {2}events:shown\.a #\d+ {2}\{"n":1\} {2}\{"by":"ada"\}$/,
    );
    expect(one("shown.b")).toMatch(/ {2}events:shown\.b #\d+ {2}\[2\]$/);
    expect(await going.end("SIGINT")).toMatchObject({ code: 0, error: "" });
  }, 120_000);

  test("another environment, by its name", async () => {
    const made = await server.api("/api/v1/environments", { body: { name: `side-${engine}` } });
    expect(made.status).toBe(201);
    const environment = made.body.id as string;
    const key = (await server.rpc("EnvironmentService", "RotateAPIKey", { id: environment })).body
      .apiKey as string;
    await server.rpc("SvcService", "Emit", { event: "there", data: 1 }, { environment, key });
    const words = ["there", "--env", `side-${engine}`, "--replay", "1", "--count", "1", "--json"];
    const { out, error } = await tail(words, { SVC_API_KEY: key }).end();
    expect(error).toBe("");
    expect(JSON.parse(out)).toMatchObject({ topic: "events:there", data: 1 });
  }, 120_000);

  test("what is wrong is said, with an exit code that tells who is to blame", async () => {
    const cases: [string[], Record<string, string>, number, RegExp][] = [
      [[], {}, 2, /PATTERN is needed/],
      [["a..b"], {}, 2, /empty segment/],
      [["a", "--filter", "1 +"], {}, 2, /filter/],
      [["a", "--replay", "1", "--after", "1"], {}, 2, /choose one/],
      [["a", "--replai", "1"], {}, 2, /did you mean --replay/],
      [["a", "--after", "99999999"], {}, 2, /above the end/],
      [["a"], { SVC_API_KEY: "ifkey_nobody" }, 1, /API key/],
      [["a", "--key-file", join(server.home.folder, "nowhere")], {}, 2, /nowhere/],
      [["a", "--env", "nowhere"], {}, 1, /no environment named nowhere/],
      [["a", "--url", "http://127.0.0.1:1"], {}, 3, /does not answer|unreachable|127\.0\.0\.1:1/],
      [["a", "--server", "http://127.0.0.1:1"], {}, 3, /does not answer|unreachable|127\.0\.0\.1:1/],
    ];
    const ends = await Promise.all(cases.map(([words, variables]) => tail(words, variables).end()));
    for (const [at, [words, , code, said]] of cases.entries()) {
      expect([words, ends[at]!.code, ends[at]!.out]).toEqual([words, code, ""]);
      expect(ends[at]!.error).toMatch(said);
      expect(ends[at]!.error).not.toContain(server.adminKey);
    }
    const help = await tail(["--help"]).end();
    expect([help.code, help.out.includes("--key-file"), help.out.includes("--server URL")]).toEqual([
      0,
      true,
      true,
    ]);
  }, 120_000);
});
