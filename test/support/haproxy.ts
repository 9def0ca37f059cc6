import { findProgram } from "./process.ts";

const debianPackage = "haproxy";

export const findHaproxy = (): string => findProgram(["haproxy", "/usr/sbin/haproxy"], debianPackage);

/** For those that test:night finds missing. */
export const haproxy = { find: findHaproxy, debianPackage };
