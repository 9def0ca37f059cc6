import { afterAll, expect, test } from "bun:test";
import { requireRow } from "../../src/app/import-readers.ts";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { shownText } from "../../src/kit/log-lines.ts";
import { type CliOptions, makeCli } from "../support/cli.ts";

const obeyed = [
  ...Array.from({ length: 0xa0 }, (_, code) => code).filter((code) => code < 0x20 || code > 0x7e),
  ...[0x61c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069],
].filter((code) => code !== 0x09 && code !== 0x0a);
const hostile = `a${obeyed.map((code) => String.fromCharCode(code)).join("")}\u001b[2Jz`;
const isObeyed = (text: string) => [...text].some((one) => obeyed.includes(one.charCodeAt(0)));

const row = { id: hostile, name: hostile, status: hostile, [hostile]: { [hostile]: hostile } };
const server = Bun.serve({
  port: 0,
  fetch: ({ url }) =>
    url.includes("refuse")
      ? Response.json({ code: "refused", message: hostile }, { status: 409 })
      : Response.json({ runs: [row], environments: [row], ...row }),
});
const cli = makeCli(
  { SVC_SERVER_URL: server.url.origin },
  { rawCommands, rowReader: async () => requireRow },
);
afterAll(() => {
  server.stop(true);
  cli.remove();
});

const ourColours = /\u001b\[(?:[012]|3[123])m/g;

test("no command writes what a terminal obeys, as a table, as JSON or as an error", async () => {
  const lines: [string, CliOptions?][] = [
    ...["runs", "runs --json", "runs --jsonl", "run get r", "run get r --json", "env list"].map(
      (line): [string] => [line],
    ),
    ["run get r", { types: [] }],
    ["run get refuse"],
    ["run get r --verbose"],
    [`emit ${hostile.replaceAll(" ", "")}`],
    [`nothing${hostile.replaceAll(" ", "")}`],
    ["import nowhere\u001b]0;title\u0007.jsonl"],
    ["tail \u009b2J..a"],
  ];
  for (const [line, options] of lines) {
    const { out, err } = await cli.run(line.split(" "), options);
    expect(`${out}${err}`.length).toBeGreaterThan(0);
    expect({ line, isObeyed: isObeyed((out + err).replaceAll(ourColours, "")) }).toEqual({
      line,
      isObeyed: false,
    });
  }
});

test("JSON stays the same value", async () => {
  const { out } = await cli.run(["run", "get", "r", "--json"]);
  expect(JSON.parse(out)).toMatchObject({ id: hostile, [hostile]: { [hostile]: hostile } });
  expect(JSON.parse(shownText(JSON.stringify(hostile)))).toBe(hostile);
});
