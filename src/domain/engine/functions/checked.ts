import { parseCron } from "../../../kit/cron/cron.ts";
import { dataPath } from "../../../kit/data-path.ts";
import { invalid } from "../../../kit/fault.ts";
import { readDeclared } from "../attributes/rules.ts";
import type { CompensateOn, FunctionDefinition } from "./definition.ts";
import { pathBytesMax } from "./limits.ts";

/** Throws the fault that names the first field whose text could never do what it is for. */
export function requireChecked(definition: FunctionDefinition): void {
  for (const [at, { cron }] of definition.triggers.entries())
    if (cron !== undefined) requireCron(`triggers[${at}].cron`, cron);
  const { concurrency, debounce, throttle, rateLimit, singleton, actorKey } = definition;
  for (const [field, path] of Object.entries({
    "concurrency.key": concurrency?.key,
    "debounce.key": debounce?.key,
    "throttle.key": throttle?.key,
    "rateLimit.key": rateLimit?.key,
    "singleton.key": singleton?.key,
    actorKey,
  }))
    if (path !== undefined) requirePath(field, path);
}

function requireCron(field: string, expression: string): void {
  try {
    parseCron(expression);
  } catch (error) {
    throw invalid(field, (error as Error).message);
  }
}

function requirePath(field: string, path: string): void {
  if (Buffer.byteLength(path) > pathBytesMax) throw invalid(field, `must be at most ${pathBytesMax} bytes`);
  if (/[\s\p{Cc}()[\]{}"'`+*/<>=!?&|,;]/u.test(path))
    throw invalid(field, "must be a path into the data of the event, as customer.id or items.0");
  if (dataPath(path).includes("")) throw invalid(field, "must have no empty part between dots");
}

/** Throws the fault that names the field and the rule. */
export const readAttributes = (
  given: Parameters<typeof readDeclared>[0] = [],
): Pick<FunctionDefinition, "attributes"> => (given.length === 0 ? {} : { attributes: readDeclared(given) });

const compensateOns: readonly CompensateOn[] = ["failure", "cancel"];

/** Throws the fault that names the field and the rule. */
export function readCompensateOn(list: readonly string[]): Pick<FunctionDefinition, "compensateOn"> {
  for (const [at, word] of list.entries())
    if (!compensateOns.some((one) => one === word))
      throw invalid(`compensateOn[${at}]`, `must be one of ${compensateOns.join(", ")}`);
  const wanted = compensateOns.filter((one) => list.includes(one));
  return wanted.length === 0 ? {} : { compensateOn: wanted };
}
