import { invalid } from "./fault.ts";

export const deploymentCharsMax = 128;

/** Which build of its program somebody is, by that one's own choice. */
export function requireDeployment(deployment: string): string {
  if (deployment.length > deploymentCharsMax || !/^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$/.test(deployment))
    throw invalid(
      "deployment",
      `must be 1 to ${deploymentCharsMax} letters, digits and ._:/@+-, the first a letter or digit`,
    );
  return deployment;
}
