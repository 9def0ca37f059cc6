import {
  createFunction,
  type HandlerContext,
  NonRetryableError,
  type SvcFunction,
} from "../../src/sdk/index.ts";
import type { Chance } from "./chance.ts";

// Handlers made by chance, of what a handler may do, for a server and for `testFunction`: see operations/sdk-twins. Races have
// one winner in each world, and not the same one: they are asked elsewhere.

export type Part =
  | { do: "run"; name: string; value: number; fails: number; error: number; retry: boolean; undo: boolean }
  | { do: "sleep" | "wait" | "waitThrow" | "emit" | "publish" | "set" | "log"; name: string; value: number }
  | { do: "invoke"; name: string; value: number; fails: boolean }
  | { do: "all" | "settled" | "parallel" | "map"; name: string; parts: Part[][] }
  | { do: "catch"; parts: Part[] }
  | { do: "throw"; error: number };

const values = [
  ...[
    0,
    1.5,
    "",
    "text",
    "\u{1f600} \u2028",
    null,
    undefined,
    true,
    [],
    {},
    [1, [undefined]],
    { a: { b: undefined } },
  ],
  ...[new Date(0), Number.NaN, -0, new Map([[1, 2]]), "x".repeat(3_000)],
] as const;

class Declined extends NonRetryableError {}
class Coded extends Error {
  code = "CODED";
}
const errors: readonly (() => unknown)[] = [
  () => new Error("plain"),
  () => new Coded("coded"),
  () => new NonRetryableError("final", { code: "FINAL" }),
  () => new Declined("declined"),
  () => "a text",
  () => ({ message: "an object", code: "OBJ" }),
  () => undefined,
  () => Object.create(null),
  () => new Error("with cause", { cause: new TypeError("the cause") }),
  () => new AggregateError([new Error("one"), new RangeError("two")], "several"),
];

export function programOf(chance: Chance): Part[] {
  const among = (count: number) => chance.between(0, count - 1);
  let names = 0;
  /** `mayFail`: what fails first, of branches that are not all waited for, is each world's own. */
  function partOf(depth: number, mayFail: boolean): Part {
    // Of one name in several branches, which one comes first is left open.
    const name = depth === 0 && among(4) === 0 ? "same" : `n${names++}`;
    const value = among(values.length);
    const kinds = depth < 2 ? 17 : 11;
    switch (among(kinds)) {
      case 0:
      case 1:
      case 2:
        return { do: "run", name, value, fails: 0, error: 0, retry: false, undo: among(4) === 0 };
      case 3:
      case 4: {
        const error = among(errors.length);
        // One that is caught is tried again whenever the handler is entered, as often as waits are met apart.
        const fails = !mayFail ? 0 : depth > 0 ? Number.MAX_SAFE_INTEGER : 1 + among(3);
        return { do: "run", name, value, fails, error, retry: among(2) === 0, undo: false };
      }
      case 5:
        return { do: "sleep", name, value };
      case 6:
        return { do: among(4) === 0 && mayFail ? "waitThrow" : "wait", name, value };
      case 7:
        return { do: among(2) === 0 ? "emit" : "publish", name, value };
      case 8:
        return { do: among(2) === 0 ? "set" : "log", name, value };
      case 9:
        return { do: "invoke", name, value, fails: among(4) === 0 && mayFail };
      case 10:
        return among(3) === 0 && mayFail
          ? { do: "throw", error: among(errors.length) }
          : { do: "log", name, value };
      case 11:
        return { do: "catch", parts: partsOf(depth + 1, mayFail) };
      default: {
        const kind = (["all", "settled", "parallel", "map"] as const)[among(4)]!;
        const parts = Array.from({ length: 1 + among(3) }, () => partsOf(depth + 1, kind === "settled"));
        return { do: kind, name: `b${names++}`, parts };
      }
    }
  }
  /** What a branch writes behind something that failed, it writes again whenever the handler is entered, before or behind others. */
  const isPlain = (part: Part, before: readonly Part[]) =>
    part.do !== "log" || !before.some(({ do: kind }) => kind === "catch" || kind === "settled");
  function partsOf(depth: number, mayFail: boolean): Part[] {
    const parts = Array.from({ length: 1 + among(depth === 0 ? 5 : 2) }, () => partOf(depth, mayFail));
    return depth === 0 ? parts : parts.filter((part, at) => isPlain(part, parts.slice(0, at)));
  }
  return partsOf(0, true);
}

/** What was caught, as far as it is the same everywhere. */
const caughtOf = (error: unknown) => {
  const { name, message, code } = (typeof error === "object" && error !== null ? error : {}) as Record<
    string,
    unknown
  >;
  return { caught: typeof error === "object" ? `${name} ${message} ${code}` : String(error) };
};

/** Plays a program. `tried` counts the tries of a step that fails at first; it is one for each run. */
export async function play(
  program: readonly Part[],
  context: HandlerContext,
  tried: Map<string, number>,
): Promise<unknown> {
  const { step, run, log } = context;
  async function one(part: Part, inside: HandlerContext["step"], path: string): Promise<unknown> {
    switch (part.do) {
      case "run":
        return inside.run(
          part.name,
          () => {
            const count = (tried.get(path) ?? 0) + 1;
            tried.set(path, count);
            if (count <= part.fails) throw errors[part.error]!();
            return values[part.value];
          },
          {
            ...(part.retry && { retry: { maxAttempts: 2, delay: 1 } }),
            ...(part.undo && { compensate: () => void tried.set(`${path} undone`, 1) }),
          },
        );
      case "sleep":
        return inside.sleep(part.name, 1);
      case "wait":
        return inside.waitForEvent(`never.${part.name}`, { timeout: 5 });
      case "waitThrow":
        return inside.waitForEvent(`never.${part.name}`, { timeout: 5, onTimeout: "throw" });
      case "emit":
        await inside.emit("twin.told", { value: values[part.value] ?? null });
        return "emitted";
      case "publish":
        await inside.publish("twins", { value: values[part.value] ?? null });
        return "published";
      case "set":
        return run.set({ [`a${path.replace(/\D/g, "_")}`]: part.value });
      case "log":
        return log.info(`line ${part.name}`, { value: values[part.value] });
      case "invoke":
        return inside.invoke<unknown>("twin-child", { input: { value: part.value, fails: part.fails } });
      case "catch":
        return all(part.parts, inside, path).catch(caughtOf);
      case "throw":
        throw errors[part.error]!();
      case "all":
        return Promise.all(part.parts.map((parts, at) => all(parts, inside, `${path}.${at}`)));
      case "settled": {
        const found = await Promise.allSettled(
          part.parts.map((parts, at) => all(parts, inside, `${path}.${at}`)),
        );
        return found.map((one) => (one.status === "fulfilled" ? one.value : caughtOf(one.reason)));
      }
      case "parallel": {
        const branches = part.parts.map(
          (parts, at) => (own: HandlerContext["step"]) => all(parts, own, `${path}.${at}`),
        );
        return inside.parallel(part.name, branches as never);
      }
      case "map":
        return inside.map(part.name, part.parts, (parts, at) => all(parts, inside, `${path}.${at}`));
    }
  }
  async function all(parts: readonly Part[], inside: HandlerContext["step"], path: string): Promise<unknown> {
    const found: unknown[] = [];
    for (const [at, part] of parts.entries()) found.push(await one(part, inside, `${path}/${at}`));
    return found;
  }
  return all(program, step, "");
}

export const child: SvcFunction = createFunction<
  { "twin-child": { value: number; fails: boolean } },
  "twin-child"
>({ id: "twin-child", retry: { maxAttempts: 1 } }, ({ event }) => {
  if (event.data.fails) throw new Coded("the child failed");
  return values[event.data.value];
}) as SvcFunction;
