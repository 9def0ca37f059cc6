import type { ThingKind } from "../../../gate/things.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { type ExportedTable, type ExportSection, exportSections } from "../../../store/exported-tables.ts";
import type { Row } from "../../../store/store.ts";
import { exportRetryAfterSeconds } from "./limits.ts";

/** The kinds of things whose rows a section has; the audit is about calls, as a whole. */
const kindsOf: Readonly<Record<ExportSection, readonly ThingKind[]>> = {
  environments: ["environment"],
  functions: ["function"],
  events: ["event", "stream"],
  streams: ["stream"],
  snapshots: ["stream"],
  runs: ["run"],
  steps: ["run"],
  projections: ["projection"],
  schemas: ["schema"],
  kv: ["kv"],
  config: ["config"],
  policies: ["policy"],
  roles: ["role"],
  users: ["user"],
  audit: [],
  webhooks: ["webhook"],
};

export const kindsOfSections = (sections: Iterable<ExportSection>): ThingKind[] => [
  ...new Set([...sections].flatMap((section) => kindsOf[section])),
];

const isSection = (name: string): name is ExportSection =>
  (exportSections as readonly string[]).includes(name);

/** `events,runs`; absent or empty means all. `meta`, the first line, is always there. */
export function sectionsOf(include: string | undefined): ReadonlySet<ExportSection> {
  const names = (include ?? "").split(",").map((name) => name.trim());
  const wanted = names.filter((name) => name !== "" && name !== "meta");
  if (names.every((name) => name === "")) return new Set(exportSections);
  const sections = wanted.filter(isSection);
  const unknown = wanted.find((name) => !isSection(name));
  if (unknown !== undefined)
    throw invalid(
      "include",
      `unknown section ${JSON.stringify(unknown.slice(0, 40))} (any of ${exportSections.join(", ")})`,
    );
  return new Set(sections);
}

export const busy = (what: string): Fault =>
  new Fault("resource_exhausted", `${what}: try again when it is over`, {
    headers: { "Retry-After": String(exportRetryAfterSeconds) },
  });

/** JSON text from the store in a line: what an older version stored with line breaks stays one line. */
const oneLine = (json: string): string => (json.includes("\n") ? json.replaceAll("\n", " ") : json);

/** A row as a line of the file. A column that is NULL is left out: `null` is a JSON value. */
export function lineOf(
  { section, table, columns }: ExportedTable,
  environmentId: string | undefined,
  row: Row,
): string {
  let fields = "";
  for (const name in columns) {
    const value = row[name];
    if (value === null || value === undefined) continue;
    const text = columns[name] === "json" ? oneLine(value as string) : JSON.stringify(value);
    fields += `${fields === "" ? "" : ","}"${name}":${text}`;
  }
  const of = environmentId === undefined ? "" : `"environment_id":${JSON.stringify(environmentId)},`;
  return `{"section":"${section}","kind":"${table}",${of}"row":{${fields}}}\n`;
}
