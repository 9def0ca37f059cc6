import { compilePolicy, PolicyError } from "../../../gate/policy.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { policyNameCharsMax } from "./limits.ts";

/** A policy as callers send it. */
export interface PolicyInput {
  name: string;
  effect: string;
  actions: string;
  resources: string;
  condition?: string;
}

export function readName(name: string): string {
  const text = name.trim();
  if (text === "") throw invalid("name", "must not be empty");
  if (text.length > policyNameCharsMax) throw invalid("name", `at most ${policyNameCharsMax} characters`);
  if (/\p{Cc}/u.test(text) || !text.isWellFormed())
    throw invalid("name", "must not contain control characters");
  return text;
}

export function requireDeny(effect: string): void {
  if (effect === "allow")
    throw new Fault("invalid_argument", "effect: policies only deny; roles allow", {
      field: "effect",
      code: "policy_effect_allow_deprecated",
    });
  if (effect !== "deny") throw invalid("effect", 'must be "deny"');
}

/** Throws the fault that names the field, unless actions, resources and condition make a policy. */
export function requirePolicy(policy: { actions: string; resources: string; condition: string }): void {
  try {
    compilePolicy({ id: "", name: "", ...policy });
  } catch (error) {
    if (error instanceof PolicyError) throw invalid(error.field, error.message);
    throw error;
  }
}
