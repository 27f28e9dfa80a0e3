// Package config reads the configuration file and makes of it what the process runs on.
//
//	file -> yaml.Node -> checked and normalised -> protoyaml -> pb/sidehook/config/v1 -> protovalidate
//	     -> defaults, provider presets, cross-checks, secrets -> Config
//
// The language is the schema's (pb/sidehook/config/v1), written for people: durations with days, sizes with units, enum
// values without their prefix. A pass of our own over the YAML comes first, since protoyaml reads no days, takes the last
// of two equal keys, ignores a second document, and knows every field by three names. Whatever could be read in two ways
// is an error, and every error says where it is (file:line:column), in which field, what is wrong and what to do; all of
// them are reported at once, as Findings.
//
// A Config is a snapshot. A reload (Watcher) builds another one whole, from the file and all secrets, and hands it over in
// one step; if anything in it is wrong the old one stays. What is read at start only (Diff marks it) keeps its old value.
// Nothing that was needed on the way is kept: neither the YAML, nor the validator and its compiled rules.
package config
