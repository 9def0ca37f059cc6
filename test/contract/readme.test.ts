import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, mkdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startTestServer, type TestServer } from "../support/server.ts";

const root = join(import.meta.dir, "../..");
const readme = await Bun.file(join(root, "README.md")).text();

/** The blocks of a section, as one program. */
function programOf(heading: string, language: string): string {
  const [section = ""] = readme.split(`## ${heading}\n`)[1]!.split("\n## ");
  const blocks = section.matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\``, "gm"));
  return [...blocks].map(([, text]) => text!).join("");
}

describe("the first minutes of the README", () => {
  let server: TestServer;
  let folder = "";
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql", settings: { strictInput: true } });
    folder = await mkdtemp(join(tmpdir(), "svc-readme-"));
  }, 120_000);
  afterAll(async () => {
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** What a program printed; a program that failed fails the test. */
  async function printedBy(command: string[]): Promise<string> {
    const program = Bun.spawn(command, {
      cwd: folder,
      env: { ...process.env, SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey },
      ...({ stdout: "pipe", stderr: "pipe" } as const),
    });
    const [printed, troubles, code] = await Promise.all([
      new Response(program.stdout).text(),
      new Response(program.stderr).text(),
      program.exited,
    ]);
    expect([code, troubles]).toEqual([0, ""]);
    return printed;
  }

  test("with curl: each call is answered, and the run completes", async () => {
    mkdirSync(join(folder, ".svc"));
    copyFileSync(server.home.keyFile, join(folder, ".svc/.ssvc_bootstrap_key.json"));
    const typed = programOf("Five minutes with curl", "sh")
      .replace("bun run start\n", "")
      .replace("http://127.0.0.1:9123", server.url);
    const answers = (await printedBy(["bash", "-eu", "-c", typed]))
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line));
    expect(answers).toHaveLength(8);
    expect(answers.filter(({ error, code }) => error ?? code)).toEqual([]);
    expect(answers[2].runs[0].status).toBe("RUN_STATUS_WAITING_FOR_CAPACITY");
    expect(answers[6]).toMatchObject({ status: "RUN_STATUS_COMPLETED", output: { hello: "Ada" } });
  }, 120_000);

  test("with the SDK: the program prints what its function returned", async () => {
    const config = { compilerOptions: { paths: { svc: [join(root, "src/sdk/index.ts")] } } };
    await Bun.write(join(folder, "tsconfig.json"), JSON.stringify(config));
    await Bun.write(join(folder, "hello.ts"), programOf("Five minutes with the SDK", "ts"));
    expect(await printedBy([process.execPath, "run", "hello.ts"])).toContain("Hello Ada");
  }, 120_000);
});
