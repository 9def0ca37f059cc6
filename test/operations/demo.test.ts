import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { isNight } from "../support/night.ts";
import { run } from "../support/process.ts";
import { startTestServer } from "../support/server.ts";

const main = resolve(import.meta.dir, "../../src/demo/main.ts");
const commitsMade = 40;
let repo: string;

beforeAll(async () => {
  repo = await mkdtemp(join(tmpdir(), "svc-repo-"));
  const subjects = ["feat(api): more", "fix: less", "docs: words", "Tidy up", "test: a case (#3)"];
  const script = [
    `cd "${repo}"`,
    "git init -q -b main",
    "git config user.email demo@example.com",
    "git config user.name Demo",
    ...Array.from({ length: commitsMade }, (_, n) => {
      return `echo ${n} >> file${n % 7}.ts && git add . && git commit -q -m "${subjects[n % subjects.length]} ${n}"`;
    }),
  ];
  await run(["sh", "-ec", script.join("\n")]);
});
afterAll(() => rm(repo, { recursive: true, force: true }));

/** The demo as a user runs it, with none of this process's own settings. */
async function demo(args: string[], variables: Record<string, string> = {}) {
  const clean = Object.entries(process.env).filter(([name]) => !/^(SVC_|NATS_|LOG_)/.test(name));
  const child = Bun.spawn([process.execPath, "run", main, "--repo", repo, ...args], {
    env: { ...(Object.fromEntries(clean) as Record<string, string>), ...variables },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { code, out: out + err };
}

const addsUp = `It adds up: ${commitsMade} commits, ${commitsMade} completed runs, ${commitsMade * 3} completed steps`;

test("every commit is handled once, though worker and server are killed on the way", async () => {
  const { code, out } = await demo(["--server-kill"]);
  expect(out).toContain(addsUp);
  expect(out).toMatch(/kill -9 {3}worker \d+/);
  expect(out).toContain("kill -9   the server");
  expect(code).toBe(0);
}, 180_000);

test.if(isNight)(
  "against a server that is there already, on PostgreSQL; a second demo finds nothing left to do",
  async () => {
    const server = await startTestServer({ engine: "postgres", settings: { leaseMs: 2_000 } });
    try {
      const there = { SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey };
      const first = await demo([], there);
      expect(first.out).toContain(addsUp);
      expect(first.code).toBe(0);
      const second = await demo([], there);
      expect(second.out).toContain("from an earlier demo");
      expect(second.code).toBe(0);
    } finally {
      await server.stop();
    }
  },
  240_000,
);

test("each order of the shop ends once, and all that shows it says the same, though worker and server are killed", async () => {
  const { code, out } = await demo(["--shop", "--orders", "80"]);
  expect(out).toContain("It adds up: 80 orders");
  expect(out).toMatch(/kill -9 {3}worker \d+/);
  expect(out).toContain("kill -9   the server");
  expect(code).toBe(0);
}, 240_000);

test("a repository that is none is named, with exit code 1", async () => {
  const { code, out } = await demo(["--repo", tmpdir()]);
  expect(out).toContain("could not go on");
  expect(code).toBe(1);
}, 120_000);
