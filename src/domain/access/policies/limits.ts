/** Policies of an org. */
export const policiesMax = 500;
export const policyVersionsMax = 10_000;
export const policyNameCharsMax = 100;
export const policyTextCharsMax = 8 * 1024;
export const dryRunDecisionsMax = 10_000;
/** How long roles and policies of an org are cached, and of how many orgs. */
export const accessKeptMs = 500;
export const accessOrgsMax = 5_000;
