import { Type } from "@sinclair/typebox";
import { unary } from "../../src/kit/operation.ts";

const nothing = Type.Object({});

/** Operations that answer who asked, for tests of what stands before every operation. */
export const whoOperations = [
  unary({
    name: "test.who",
    action: "functions:list",
    summary: "Who asks, for any reader.",
    input: nothing,
    rest: "GET /test/who",
    handle: (_input, { caller, environmentId }) => ({ caller, environment_id: environmentId }),
  }),
  unary({
    name: "test.manage",
    action: "apikeys:manage",
    summary: "For admins only.",
    input: nothing,
    rest: "GET /test/manage",
    handle: () => ({}),
  }),
  unary({
    name: "test.public",
    action: null,
    summary: "For everyone.",
    input: nothing,
    rest: "GET /test/public",
    handle: () => ({}),
  }),
];

/** A log that remembers. */
export function keptLog() {
  const lines: { level: string; event: string; fields: Record<string, unknown> }[] = [];
  const at =
    (level: string) =>
    (event: string, fields: Record<string, unknown> = {}) =>
      void lines.push({ level, event, fields });
  return {
    lines,
    log: { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") },
    of: (event: string) => lines.filter((line) => line.event === event),
  };
}
