import { invalid } from "../../../kit/fault.ts";
import type { CompensateOn, FunctionDefinition } from "./definition.ts";

const compensateOns: readonly CompensateOn[] = ["failure", "cancel"];

/** Throws the fault that names the field and the rule. */
export function readCompensateOn(list: readonly string[]): Pick<FunctionDefinition, "compensateOn"> {
  for (const [at, word] of list.entries())
    if (!compensateOns.some((one) => one === word))
      throw invalid(`compensateOn[${at}]`, `must be one of ${compensateOns.join(", ")}`);
  const wanted = compensateOns.filter((one) => list.includes(one));
  return wanted.length === 0 ? {} : { compensateOn: wanted };
}
