import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { makeCli } from "../support/cli.ts";

interface Heard {
  at: string;
  key: string | null;
  environment: string | null;
}

const heard: Heard[] = [];
const listener = (at: string) =>
  Bun.serve({
    port: 0,
    fetch({ headers }) {
      const environment = headers.get("x-svc-environment");
      // A socket's key stands among its protocols.
      const spoken = /svc\.auth\.bearer\.(\S+)/.exec(headers.get("sec-websocket-protocol") ?? "")?.[1];
      const ofSocket = spoken === undefined ? null : `Bearer ${Buffer.from(spoken, "base64url")}`;
      heard.push({ at, key: headers.get("authorization") ?? ofSocket, environment });
      return Response.json([]);
    },
  });
const own = listener("own");
const other = listener("other");
const url = { own: own.url.origin, other: other.url.origin };

const cli = makeCli({}, { rawCommands });
const file = join(cli.folder, ".config/svc/profiles.json");
mkdirSync(join(cli.folder, ".config/svc"), { recursive: true });

function keep(profiles: Record<string, object>, current?: string): void {
  writeFileSync(file, JSON.stringify({ ...(current && { current }), profiles }));
  chmodSync(file, 0o600);
}

afterAll(() => {
  own.stop(true);
  other.stop(true);
  cli.remove();
});

async function sentBy(line: string, environment: Record<string, string> = {}) {
  heard.length = 0;
  const ended = await cli.run(line.split(" "), { environment });
  return heard[0] ?? ended;
}

const to = (at: string, key: string | null) =>
  expect.objectContaining({ at, key: key === null ? null : `Bearer ${key}` });

describe("a key goes to its own server", () => {
  const prod = { server: url.own, key: "k-prod", environment: "env_prod" };
  beforeEach(() => keep({ prod, keyless: { server: url.own } }, "prod"));

  test("that of a profile to the profile's, whatever names another", async () => {
    const toOther = { SVC_SERVER_URL: url.other };
    expect(await sentBy("runs")).toEqual({ at: "own", key: "Bearer k-prod", environment: "env_prod" });
    const nothing = { at: "other", key: null, environment: null };
    expect(await sentBy("runs", toOther)).toEqual(nothing);
    expect(await sentBy("runs", { ...toOther, SVC_PROFILE: "prod" })).toEqual(nothing);
    expect(await sentBy(`runs --server ${url.other}`)).toEqual(nothing);
    expect(await sentBy(`call runs.list -s ${url.other}`)).toEqual(nothing);
    expect(await sentBy(`tail a -s ${url.other}`)).toEqual(nothing);
    expect(await sentBy("tail a", toOther)).toEqual(nothing);
    expect(await sentBy("tail a")).toEqual(to("own", "k-prod"));
    expect(await sentBy(`runs --server ${url.own}/`)).toEqual(to("own", "k-prod"));
    expect(await sentBy(`runs --profile prod --server ${url.other}`)).toEqual(to("other", "k-prod"));
    expect(await sentBy("runs --profile prod", toOther)).toEqual(to("own", "k-prod"));
  });

  test("that of the variables to theirs, and to one that the command names", async () => {
    const pair = { SVC_SERVER_URL: url.other, SVC_API_KEY: "k-shell" };
    const alone = { SVC_API_KEY: "k-shell" };
    expect(await sentBy("runs", pair)).toEqual(to("other", "k-shell"));
    expect(await sentBy("runs --profile prod", pair)).toEqual(to("own", "k-prod"));
    expect(await sentBy("runs --profile keyless", pair)).toEqual(to("own", null));
    expect(await sentBy("runs --profile keyless", alone)).toEqual(to("own", "k-shell"));
    expect(await sentBy("runs", { ...alone, SVC_PROFILE: "keyless" })).toEqual(to("own", "k-shell"));
    expect(await sentBy(`runs --server ${url.other}`, alone)).toEqual(to("other", "k-shell"));
    for (const line of ["runs", "tail a"])
      expect(await sentBy(line, alone)).toMatchObject({
        code: 2,
        err: expect.stringContaining("names no server"),
      });
  });
});

test("a folder that the command stands in changes neither server nor code", async () => {
  const folder = join(cli.folder, "cloned");
  mkdirSync(folder);
  writeFileSync(join(folder, ".env"), `SVC_SERVER_URL=${url.other}\nSVC_API_KEY=k-folder\n`);
  writeFileSync(join(folder, "bunfig.toml"), 'preload = ["./loaded.ts"]\n');
  writeFileSync(join(folder, "loaded.ts"), 'await Bun.write("ran", "");\n');
  keep({ prod: { server: url.own, key: "k-prod" } }, "prod");
  heard.length = 0;
  const env = { PATH: process.env.PATH ?? "", HOME: cli.folder };
  const child = Bun.spawn([resolve(import.meta.dir, "../../src/main.ts"), "runs"], { cwd: folder, env });
  await child.exited;
  expect(heard).toEqual([to("own", "k-prod")]);
  expect(await Bun.file(join(folder, "ran")).exists()).toBe(false);
  // Typed by hand, Bun obeys the folder's bunfig.toml before a line of ours runs; of its `.env` nothing is left.
  rmSync(join(folder, "bunfig.toml"));
  const typed = Bun.spawn([process.execPath, resolve(import.meta.dir, "../../src/main.ts"), "runs"], {
    ...{ cwd: folder, env },
  });
  await typed.exited;
  expect(heard).toEqual([to("own", "k-prod"), to("own", "k-prod")]);
  // A file that was asked for is obeyed, in place of the folder's.
  writeFileSync(join(folder, "asked.env"), `SVC_SERVER_URL=${url.own}\nSVC_API_KEY=k-asked\n`);
  for (const flag of [["--env-file=asked.env"], ["--env-file", "asked.env"]]) {
    heard.length = 0;
    const main = resolve(import.meta.dir, "../../src/main.ts");
    const asked = Bun.spawn([process.execPath, ...flag, main, "runs"], { cwd: folder, env });
    await asked.exited;
    expect(heard).toEqual([to("own", "k-asked")]);
  }
});
