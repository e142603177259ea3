"""All SQL, the schema and its migrations, the states, and the way in. Imports nothing of ours."""
