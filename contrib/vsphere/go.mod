module gorun/contrib/vsphere

go 1.26

require github.com/vmware/govmomi v0.55.1

require github.com/google/uuid v1.6.0 // indirect
