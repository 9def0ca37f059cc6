import { Fault } from "../../../../kit/fault.ts";
import { isSet } from "../../attributes/rules.ts";
import { type RunReport, withoutAttributes } from "../execution/report.ts";
import type { AttributeNames } from "./attribute-names.ts";

const isRefusal = (error: unknown): error is Fault =>
  error instanceof Fault && (error.kind === "invalid_argument" || error.kind === "resource_exhausted");

export type NamedReports = ReturnType<typeof openNamedReports>;

/**
 * Submits reports once the names of their attributes are known. Attributes that cannot be stored fail their
 * run: its worker would report them again.
 */
export function openNamedReports(
  names: Pick<AttributeNames, "require" | "forget">,
  submit: (report: RunReport) => Promise<void>,
  onRefused: () => void,
) {
  const naming = ({ environmentId, attributes }: RunReport) =>
    attributes && names.require(environmentId, attributes.filter(isSet));
  const named = (report: RunReport, making: Promise<void>): Promise<RunReport> =>
    making.then(
      () => report,
      (error: unknown) => {
        if (!isRefusal(error)) throw error;
        onRefused();
        return withoutAttributes(report, error.message);
      },
    );
  return {
    onRefused,
    /** Submits a report once the names of its attributes are known. */
    submit(report: RunReport) {
      const making = naming(report);
      return making ? named(report, making).then(submit) : submit(report);
    },
    /**
     * The same report when a name of its attributes was deleted since: with the name made again, or refused.
     */
    async again(report: RunReport): Promise<RunReport> {
      names.forget(report.environmentId);
      return named(report, naming(report) ?? Promise.resolve());
    },
  };
}
