import type { TSchema } from "@sinclair/typebox";

/** The schema with words for those who write clients: shape, unit and bounds of one field. */
export const described = <S extends TSchema>(schema: S, description: string): S => ({
  ...schema,
  description,
});
