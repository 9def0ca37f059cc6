import { join } from "node:path";
import { faultCatalogue } from "../../src/edge/fault-encoding.ts";
import type { FaultKind } from "../../src/kit/fault.ts";
import { table, withPart } from "./reference.ts";

const folder = join(import.meta.dir, "../../src/docs/pages");

/** What a caller does about an error of this kind. */
const remedies: Record<FaultKind, string> = {
  invalid_argument: "Correct the field; the same call fails again.",
  unauthenticated: "Send a key as `Authorization: Bearer …`, or log in again.",
  permission_denied:
    "Ask an admin for a role that grants the action, or look at the deny policies of your roles.",
  not_found: "Check the id and the environment (`X-Svc-Environment`).",
  already_exists: "Take another name or key, or use what there is.",
  failed_precondition: "Read the thing, do what the message asks for, then call again.",
  aborted: "Read again, decide again, write again.",
  precondition_failed: "Read the value with its revision and decide again.",
  method_not_allowed: "Use a method that `Allow` names.",
  payload_too_large: "Send less: store large data elsewhere and send its address.",
  unsupported_media_type: "Send `Content-Type: application/json`.",
  resource_exhausted: "Wait for `Retry-After`. If it comes again and again, raise the limit or ask for less.",
  unimplemented: "Ask `GET /api/v1/capabilities` what works here.",
  unavailable: "Try again with growing pauses; the SDK does so for reads and for emits with a key.",
  deadline_exceeded: "Read whether it happened; repeat it with the same idempotency key.",
  internal: "Look the id up in the log of the server. Repeat with the same idempotency key.",
};

const errorsTable = (): string =>
  table(
    ["kind", "REST", "RPC", "means", "do"],
    faultCatalogue.map(({ code, status, connect, connect_status, meaning }) => [
      `\`${code}\``,
      `${status}`,
      `${connect_status} \`${connect}\``,
      meaning,
      remedies[code as FaultKind],
    ]),
  );

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
    ["errors.md", withPart(await read("errors.md"), "errors", errorsTable())],
    ["limits.md", withPart(await read("limits.md"), "limits", await limitsTables())],
  ]);
}

export async function writeDocs(): Promise<void> {
  for (const [name, text] of await freshDocs()) await Bun.write(join(folder, name), text);
}

export const docsFolder = folder;
