package config

import (
	"fmt"

	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// Weakening is a place where a configuration lets through what would be refused otherwise.
type Weakening struct {
	// Path is the field.
	Path string
	// Source is the source's name; empty for an entry of open, and for the outbound half.
	Source string
	// Endpoint is the endpoint's id; empty for the global filter, and for the inbound half.
	Endpoint string
	// What is "verify: none", "enforce: REPORT", "open /", "allow 127.0.0.1/32" and the like.
	What string
}

// Weakenings lists what lets unverified requests through, and what lets deliveries go where the address filter would not
// let them, for the audit log.
func Weakenings(c *Config) []Weakening {
	var all []Weakening
	for i, o := range c.Message.GetExtauthz().GetOpen() {
		if o.GetPathPrefix() == "/" {
			all = append(all, Weakening{Path: fmt.Sprintf("extauthz.open[%d]", i), What: "open /"})
		}
	}
	for i, s := range c.Message.GetExtauthz().GetSources() {
		if s.GetVerify() != "" {
			all = append(all, Weakening{Path: fmt.Sprintf("extauthz.sources[%d].verify", i), Source: s.GetName(), What: "verify: none"})
		}
		if s.GetEnforce() == configv1.Enforce_ENFORCE_REPORT {
			all = append(all, Weakening{Path: fmt.Sprintf("extauthz.sources[%d].enforce", i), Source: s.GetName(), What: "enforce: REPORT"})
		}
		for j, p := range s.GetDelivery().GetAllow() {
			all = append(all, Weakening{Path: fmt.Sprintf("extauthz.sources[%d].delivery.allow[%d]", i, j), Source: s.GetName(), What: "allow " + p})
		}
	}
	all = append(all, filterWeakenings("egress.filter", "", c.Message.GetEgress().GetFilter())...)
	for i, e := range c.Message.GetEgress().GetEndpoints() {
		all = append(all, filterWeakenings(fmt.Sprintf("egress.endpoints[%d].filter", i), e.GetId(), e.GetFilter())...)
	}
	return all
}

// filterWeakenings lists what an address filter lets through beyond what it does by default.
func filterWeakenings(path, endpoint string, m *configv1.AddressFilter) []Weakening {
	var all []Weakening
	add := func(field, what string) {
		all = append(all, Weakening{Path: path + "." + field, Endpoint: endpoint, What: what})
	}
	for i, p := range m.GetAllow() {
		add(fmt.Sprintf("allow[%d]", i), "allow "+p)
	}
	for i, n := range m.GetAllowNames() {
		add(fmt.Sprintf("allow_names[%d]", i), "allow_names "+n)
	}
	if m.GetAllowHttp() {
		add("allow_http", "allow_http: true")
	}
	if m.GetAllowNat64() {
		add("allow_nat64", "allow_nat64: true")
	}
	if m.GetEnforce() == configv1.Enforce_ENFORCE_REPORT {
		add("enforce", "enforce: REPORT")
	}
	if m.GetProxy().GetByName() {
		add("proxy.by_name", "proxy.by_name: true")
	}
	return all
}
