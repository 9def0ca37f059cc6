import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const fenced = (text: string, kinds: string) =>
  [...text.matchAll(new RegExp(`\`\`\`(${kinds})\\n([\\s\\S]*?)\`\`\``, "g"))].map((match) => ({
    kind: match[1]!,
    text: match[2]!,
  }));

const page = fenced(await Bun.file(join(import.meta.dir, "steered-run.md")).text(), "sh|json|text");
const curl = fenced(await Bun.file(join(import.meta.dir, "../../README.md")).text(), "sh").map(
  ({ text }) => text,
);
const preamble = [
  curl.find((text) => text.includes("api() {"))!,
  curl.flatMap((text) => text.split("\n")).find((line) => line.startsWith("field() {"))!,
];

/** `…` stands for anything within a line, or at its end for the rest. */
const patternOf = (answer: string) =>
  new RegExp(`^${answer.trim().split("…").map(RegExp.escape).join(".*")}$`);

describe.each(engines)("the session of steered-run.md on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 5_000 } });
  });
  afterAll(() => server.stop());

  test("answers as the page says", async () => {
    const { folder, keyFile } = server.home;
    await mkdir(join(folder, ".svc"), { recursive: true });
    await symlink(keyFile, join(folder, ".svc/.ssvc_bootstrap_key.json"));
    const mark = "--- the end of a block";
    const commands = page.filter(({ kind }) => kind === "sh");
    const script = [...preamble, ...commands.flatMap(({ text }) => [text, `echo '${mark}'`])].join("\n");
    const shell = Bun.spawn(["bash", "-eu", "-c", script.replaceAll("http://127.0.0.1:9123", server.url)], {
      cwd: folder,
      stdout: "pipe",
      stderr: "pipe",
    });
    const [said, complaints] = await Promise.all([
      new Response(shell.stdout).text(),
      new Response(shell.stderr).text(),
    ]);
    expect({ code: await shell.exited, complaints }).toEqual({ code: 0, complaints: "" });
    const answers = said.split(`${mark}\n`);
    let block = -1;
    let compared = 0;
    for (const { kind, text } of page) {
      if (kind === "sh") {
        block++;
        continue;
      }
      const lines = answers[block]!.split("\n").filter((line) => line !== "");
      const wanted = text.split("\n").filter((line) => line !== "");
      expect(lines).toHaveLength(wanted.length);
      for (const [place, line] of wanted.entries()) expect(lines[place]).toMatch(patternOf(line));
      compared += wanted.length;
    }
    expect(compared).toBeGreaterThan(15);
  }, 120_000);
});
