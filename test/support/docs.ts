import { join } from "node:path";
import { Code } from "@connectrpc/connect";
import { faultCatalogue } from "../../src/edge/fault-encoding.ts";
import type { FaultKind } from "../../src/kit/fault.ts";
import { faultPages, type ShownCall } from "./fault-pages.ts";
import { table, withPart } from "./reference.ts";

const folder = join(import.meta.dir, "../../src/docs/pages");

/** gRPC's number of a code of Connect: the two protocols share them. */
const grpcOf = (connect: string): string => {
  const name = connect.toUpperCase();
  const word = connect.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase());
  return `${Code[word as keyof typeof Code]} \`${name}\``;
};

const errorsTable = (): string =>
  table(
    ["kind", "REST", "RPC", "gRPC", "means"],
    faultCatalogue.map(({ code, status, connect, connect_status, meaning }) => [
      `[\`${code}\`](#${code})`,
      `${status}`,
      `${connect_status} \`${connect}\``,
      grpcOf(connect),
      meaning,
    ]),
  );

const callText = ({ route, headers = {}, body }: ShownCall): string =>
  [
    route,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    ...(body === undefined ? [] : ["", typeof body === "string" ? body : JSON.stringify(body)]),
  ].join("\n");

/** A section a kind: its anchor is its name. */
const errorsSections = (): string =>
  faultCatalogue
    .map(({ code, status, connect_status }) => {
      const { when, remedy, call, answer } = faultPages[code as FaultKind];
      const answered = call?.route.includes("/svc.v1.") ? connect_status : status;
      const example = [...(call ? [callText(call), ""] : []), `${answered}`, JSON.stringify(answer)].join(
        "\n",
      );
      return `### \`${code}\`\n\n**When:** ${when}\n\n**Do:** ${remedy}\n\n\`\`\`http\n${example}\n\`\`\``;
    })
    .join("\n\n");

const sources = join(import.meta.dir, "../../src");

const shownValue = (name: string, value: number): string => {
  const shown = value.toLocaleString("en");
  if (/Bytes/.test(name) && value >= 1024 && value % 1024 === 0)
    return value % (1024 * 1024) === 0 ? `${value / (1024 * 1024)} MiB` : `${value / 1024} KiB`;
  if (/Ms(Max|Min)?$/.test(name) && value % 1_000 === 0) return `${(value / 1_000).toLocaleString("en")} s`;
  return shown;
};

/** Every number of every `limits.ts`, a table a room; a comment belongs to the lines below it until the next gap. */
async function limitsTables(): Promise<string> {
  const paths = [...new Bun.Glob("{kit,domain}/**/limits.ts").scanSync({ cwd: sources })].sort();
  const parts = await Promise.all(
    paths.map(async (path) => {
      const values: Record<string, unknown> = await import(join(sources, path));
      const text = await Bun.file(join(sources, path)).text();
      const words = new Map(
        [...text.matchAll(/\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*export const (\w+)/g)].map(([, words, name]) => [
          name!,
          words!.replace(/\s*\n\s*\*\s*/g, " ").trim(),
        ]),
      );
      const rows = Object.entries(values).flatMap(([name, value]) =>
        typeof value === "number" ? [[`\`${name}\``, shownValue(name, value), words.get(name) ?? ""]] : [],
      );
      const room = path.replace(/^domain\//, "").replace(/\/limits\.ts$/, "");
      const title = room === "kit" ? "Shared" : room.replaceAll("/", ": ");
      return rows.length === 0 ? "" : `## ${title}\n\n${table(["limit", "value", "what it bounds"], rows)}`;
    }),
  );
  return parts.filter(Boolean).join("\n\n");
}

/** Pages with a part that is written from the code, as they should be. */
export async function freshDocs(): Promise<Map<string, string>> {
  const read = (name: string) => Bun.file(join(folder, name)).text();
  return new Map([
    [
      "errors.md",
      withPart(
        withPart(await read("errors.md"), "errors", errorsTable()),
        "sections",
        `\n${errorsSections()}\n`,
      ),
    ],
    ["limits.md", withPart(await read("limits.md"), "limits", await limitsTables())],
  ]);
}

export async function writeDocs(): Promise<void> {
  for (const [name, text] of await freshDocs()) await Bun.write(join(folder, name), text);
}

export const docsFolder = folder;
