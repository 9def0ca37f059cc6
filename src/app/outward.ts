import { type AddressGuard, addressGuard } from "../kit/addresses.ts";
import type { Config } from "../settings/settings.ts";

/** Which addresses we may be told to call. */
export const guardOf = ({ pushAllowPrivate, dev }: Pick<Config, "pushAllowPrivate" | "dev">): AddressGuard =>
  addressGuard(pushAllowPrivate ?? (dev ? ["127.0.0.0/8", "::1"] : []));
