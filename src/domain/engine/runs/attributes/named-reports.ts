import { Fault } from "../../../../kit/fault.ts";
import { isSet } from "../../attributes/rules.ts";
import { type RunReport, withoutAttributes } from "../execution/report.ts";
import type { AttributeNames } from "./attribute-names.ts";

const isRefusal = (error: unknown): error is Fault =>
  error instanceof Fault && (error.kind === "invalid_argument" || error.kind === "resource_exhausted");

/**
 * Submits reports once the names of their attributes are known. Attributes that cannot be stored fail their run: its
 * worker would report them again.
 */
export function openNamedReports(
  names: Pick<AttributeNames, "require">,
  submit: (report: RunReport) => Promise<void>,
  onRefused: () => void,
): (report: RunReport) => Promise<void> {
  return (report) => {
    const making = report.attributes && names.require(report.environmentId, report.attributes.filter(isSet));
    if (!making) return submit(report);
    return making.then(
      () => submit(report),
      (error: unknown) => {
        if (!isRefusal(error)) throw error;
        onRefused();
        return submit(withoutAttributes(report, error.message));
      },
    );
  };
}
